// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"testing/fstest"
)

func TestVersions(t *testing.T) {
	pages := map[string][]byte{}
	if err := versions(fstest.MapFS{}, pages); err != nil || len(pages) != 0 {
		t.Errorf("a tree without results: %d pages, error %v", len(pages), err)
	}
	tree := fstest.MapFS{results: {Data: []byte("1.32.9 passed 2026-11-26\n1.37.1 failed 2026-11-25\n")}}
	if err := versions(tree, pages); err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{"| 1.32.9 | passed | 2026-11-26 |\n", "| 1.37.1 | failed | 2026-11-25 |\n"} {
		if !strings.Contains(string(pages["versions.md"]), row) {
			t.Errorf("the page lacks %q:\n%s", row, pages["versions.md"])
		}
	}
	for _, line := range []string{"1.32.9", "1.32.9 skipped 2026-11-26", "1.32.9 passed today"} {
		if err := versions(fstest.MapFS{results: {Data: []byte(line)}}, pages); err == nil {
			t.Errorf("no error for %q", line)
		}
	}
}
