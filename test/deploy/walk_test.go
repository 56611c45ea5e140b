// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing/config"
)

// TestWalksDocuments: the configs that the tutorial applies are valid, and the invalid one has the errors that the page
// shows.
func TestWalksDocuments(t *testing.T) {
	read := func(name string) []byte {
		text, err := os.ReadFile(filepath.Join("../../docs/walk", name))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	for _, name := range []string{"sharing.yaml", "changed.yaml"} {
		c, err := config.Decode(read(name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if pools, profiles := len(c.Pools()), len(c.Profiles()); pools != 2 || profiles != 4 {
			t.Errorf("%s has %d pools and %d profiles", name, pools, profiles)
		}
	}
	_, err := config.Decode(read("invalid.yaml"))
	for _, want := range []string{"did you mean shared?", "did you mean maxSharesPerGPU?", "did you mean memory?"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("invalid.yaml: %v, want %q", err, want)
		}
	}
	named := 0
	for _, name := range []string{"quick-start.md", "tutorial.md"} {
		page, err := os.ReadFile(filepath.Join("../../docs/start", name))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`docs/(walk/[\w.-]+)`).FindAllStringSubmatch(string(page), -1) {
			named++
			if _, err := os.Stat(filepath.Join("../../docs", m[1])); err != nil {
				t.Errorf("%s names what does not exist: %v", name, err)
			}
		}
	}
	if named < 5 {
		t.Errorf("the pages name %d files", named)
	}
}
