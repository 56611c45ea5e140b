// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package documents_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/test/documents"
)

// What is not typed is still there, and most of each page is typed.
func TestPagesAreRead(t *testing.T) {
	for page, c := range map[string]struct {
		not   map[string]string
		typed int
	}{"operate/install-with-kubectl.md": {documents.Kubectl(), 14}, "use/pods.md": {documents.Pods(), 14},
		"use/one-machine.md": {documents.OneMachine(), 8}} {
		text, err := os.ReadFile("../../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		all, err := documents.Commands(page, string(text), c.not)
		if err != nil {
			t.Fatal(err)
		}
		typed := 0
		for _, one := range all {
			if one.Reason == "" {
				typed++
			}
		}
		if typed < c.typed {
			t.Errorf("%s: %d commands are typed, want %d or more", page, typed, c.typed)
		}
	}
}

func TestCommands(t *testing.T) {
	page := "text\n```\none  # a word\n\ntwo <<END\na: b\nEND\nthree\n```\n```yaml\nno: command\n```\n"
	got, err := documents.Commands("a.md", page, map[string]string{"three": "why not"})
	if err != nil {
		t.Fatal(err)
	}
	want := []documents.Command{
		{Page: "a.md", Line: 3, Text: "one  # a word"}, {Page: "a.md", Line: 5, Text: "two <<END\na: b\nEND"},
		{Page: "a.md", Line: 8, Text: "three", Reason: "why not"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for says, not := range map[string]map[string]string{`no command "four"`: {"four": "x"}} {
		if _, err := documents.Commands("a.md", page, not); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	if _, err := documents.Commands("a.md", "```\none <<END\n```\n", nil); err == nil ||
		!strings.Contains(err.Error(), "has no end") {
		t.Errorf("an open text: %v", err)
	}
}

func TestSection(t *testing.T) {
	page := "# A\n\n## B\n\n```\n# no heading\none\n```\n\n### C\n\n1. x\n\n   ```\n   two\n   ```\n\n" +
		"## D\n\n```\nthree\n```\n"
	for heading, want := range map[string]int{"B": 3, "C": 1, "D": 1, "A": 4} {
		part, err := documents.Section(page, heading)
		if err != nil {
			t.Fatal(err)
		}
		all, err := documents.Commands("a.md", part, nil)
		if err != nil || len(all) != want {
			t.Errorf("%s: commands %+v, error %v, want %d", heading, all, err, want)
		}
	}
	if _, err := documents.Section(page+page, "B"); err == nil || !strings.Contains(err.Error(), `"B": found 2 times`) {
		t.Errorf("a heading that is there twice: %v", err)
	}
}
