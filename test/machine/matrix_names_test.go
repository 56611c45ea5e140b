// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"path/filepath"
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
