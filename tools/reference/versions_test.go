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
	tree := fstest.MapFS{results: {Data: []byte(
		"1.32.9 containerd-2.4.2 passed 2026-11-26 0a1b2c3d 8 TestGang,TestGangPreempts\n" +
			"1.37.1 containerd-1.7.35 failed 2026-11-25 00000000 9 -\n" +
			"1.37.1 crio-1.34.0 passed 2026-11-25 00000000 14 -\n")}}
	if err := versions(tree, pages); err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{
		"| 1.32.9 | containerd 2.4.2 | passed | 8 | `TestGang`, `TestGangPreempts` | 2026-11-26 | `0a1b2c3d` |\n",
		"| 1.37.1 | containerd 1.7.35 | failed | 9 | none | 2026-11-25 | `00000000` |\n",
		"| 1.37.1 | CRI-O 1.34.0 | passed | 14 | none | 2026-11-25 | `00000000` |\n",
	} {
		if !strings.Contains(string(pages["versions.md"]), row) {
			t.Errorf("the page lacks %q:\n%s", row, pages["versions.md"])
		}
	}
	for name, line := range map[string]string{
		"too few words": "1.32.9",
		"a result":      "1.32.9 containerd-2.4.2 skipped 2026-11-26 0a1b 8 -",
		"a date":        "1.32.9 containerd-2.4.2 passed today 0a1b 8 -",
		"a commit":      "1.32.9 containerd-2.4.2 passed 2026-11-26 main 8 -",
		"changed files": "1.32.9 containerd-2.4.2 passed 2026-11-26 0a1b-changed 8 -",
		"a number":      "1.32.9 containerd-2.4.2 passed 2026-11-26 0a1b all -",
	} {
		if err := versions(fstest.MapFS{results: {Data: []byte(line)}}, pages); err == nil {
			t.Errorf("no error for %s: %q", name, line)
		}
	}
}
