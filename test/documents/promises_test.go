// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package documents_test

import (
	"os"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/test/documents"
)

// tested reads a page of docs, and fails the test if it names a test that does not exist.
func tested(t *testing.T, page string, tests map[string][]string) (text string, named int) {
	t.Helper()
	data, err := os.ReadFile("../../docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	wrong, named := documents.Misnamed(string(data), tests)
	for _, w := range wrong {
		t.Errorf("%s: %s", page, w)
	}
	return string(data), named
}

// Each promise names the tests that show it. Each test that the limits name exists.
func TestPromisesNameTests(t *testing.T) {
	tests, err := documents.Tests("../..")
	if err != nil {
		t.Fatal(err)
	}
	text, _ := tested(t, "design/promises.md", tests)
	promises := 0
	for section := range strings.SplitSeq(text, "\n## ") {
		if section[0] < '1' || section[0] > '9' {
			continue
		}
		title, _, _ := strings.Cut(section, "\n")
		if _, n := documents.Misnamed(section, tests); n < 2 {
			t.Errorf("the promise %q names %d tests, want at least 2", title, n)
		}
		promises++
	}
	if promises != 7 {
		t.Errorf("%d promises, want 7", promises)
	}
	if _, n := tested(t, "reference/known-limits.md", tests); n < 30 {
		t.Errorf("known-limits.md names %d tests, want at least 30", n)
	}
}
