// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/test/documents"
)

// Each test that the page of the matrix names exists in the package that the page names.
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
}

// The page of the matrix has the text that `make matrix` writes, and a row for each attack. The results are from a run.
func TestMatrixPageHasTheText(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference", "enforcement.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	if !strings.HasPrefix(page, introduction) || !strings.HasSuffix(page, limits) {
		t.Error("the page has another text than the program: run make matrix")
	}
	for _, k := range attacks() {
		if !strings.Contains(page, "\n| "+k.what) {
			t.Errorf("the page has no row for %q: run make matrix", k.what)
		}
	}
}
