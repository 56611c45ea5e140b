// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/kerf-gpu/kerf/test/documents"
)

// A test that the page names is there, in the package that the page names; so is every package that the promises are shown by.
func TestTextNamesTests(t *testing.T) {
	there, err := documents.Tests(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	wrong, n := documents.Misnamed(introduction+limits, there)
	for _, w := range wrong {
		t.Error("the page of the matrix: " + w)
	}
	if n < 20 {
		t.Errorf("%d names of tests found, want at least 20", n)
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "promises.md"))
	if err != nil {
		t.Fatal(err)
	}
	n = 0
	for _, shown := range regexp.MustCompile(`(?s)Shown by .*?(?:\.\n|\. [A-Z]|$)`).FindAllString(string(text), -1) {
		for _, dir := range regexp.MustCompile("`([a-z][\\w-]*/[\\w./-]+)`").FindAllStringSubmatch(shown, -1) {
			if n++; len(there[dir[1]]) == 0 {
				t.Errorf("promises.md says that something is shown by %s, which has no tests", dir[1])
			}
		}
	}
	if n < 20 {
		t.Errorf("%d packages found in promises.md, want at least 20", n)
	}
}
