// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing/config"
)

// Each complete SharingConfig in the docs is valid.
func TestConfigsInDocuments(t *testing.T) {
	files, err := filepath.Glob("../../docs/*/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range append(files, "../../README.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, rest := range strings.Split(string(text), "\n```yaml\n")[1:] {
			block, _, _ := strings.Cut(rest, "\n```")
			if !strings.Contains(block, "kind: SharingConfig") || strings.Contains(block, "kind: ConfigMap") {
				continue
			}
			found++
			if _, err := config.Decode([]byte(block)); err != nil {
				t.Errorf("%s: %v in\n%s", file, err, block)
			}
		}
	}
	if found < 4 {
		t.Errorf("%d configs were found", found)
	}
}
