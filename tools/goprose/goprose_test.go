// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const example = `// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package a is an
// example:
//
//	code is no prose
//
//   - first item
//     goes on
//   - second item
package a

import "some path with words"

//go:generate echo some words
type t struct {
	F int ` + "`json:\"tag of words\"`" + ` // a field
}

const s, one = "two words\nthree words more", "word"

const raw = ` + "`first line\nsecond line`" + `
`

func TestExtract(t *testing.T) {
	got, err := extract("a.go", []byte(example))
	if err != nil {
		t.Fatal(err)
	}
	type at struct {
		text string
		line int
	}
	list := func(passages []passage) []at {
		var out []at
		for _, p := range passages {
			out = append(out, at{p.text, p.line(0)})
		}
		return out
	}
	comments := []at{{"Package a is an example:", 4}, {"first item goes on", 9}, {"second item", 11}, {"a field", 18}}
	if got := list(got.comments); !slices.Equal(got, comments) {
		t.Errorf("comments %v, want %v", got, comments)
	}
	if line := got.comments[0].line(len("Package a is an exa")); line != 5 {
		t.Errorf("the second line of a paragraph is %d, want 5", line)
	}
	inStrings := []at{{"two words", 21}, {"three words more", 21}, {"first line", 23}, {"second line", 24}}
	if got := list(got.strings); !slices.Equal(got, inStrings) {
		t.Errorf("strings %v, want %v", got, inStrings)
	}
	if test, err := extract("a_test.go", []byte(example)); err != nil || len(test.strings) > 0 {
		t.Errorf("a test has strings %v, %v", test.strings, err)
	}
}

func TestFindings(t *testing.T) {
	p := passage{}
	p.add("é first", 7)
	p.add("second", 8)
	from := map[string]source{"comments/0.txt": {"a.go", []passage{{text: "x", starts: []int{0}, lines: []int{1}}, p}}}
	out := `{"comments/0.txt": [{"Check": "Kerf.Never", "Message": "m", "Line": 3, "Span": [9, 14]},
		{"Check": "Kerf.SentenceLength", "Message": "n", "Line": 3, "Span": [1, 2]}]}`
	got, err := findings([]byte(out), from)
	want := []finding{{"a.go", 7, "Kerf.SentenceLength", "n"}, {"a.go", 8, "Kerf.Never", "m"}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	if _, err := findings([]byte(strings.ReplaceAll(out, "3,", "9,")), from); err == nil {
		t.Error("an alert outside of the text is accepted")
	}
}

func TestAllowed(t *testing.T) {
	a, b := key{"a.go", "Kerf.Never"}, key{"b.go", "Kerf.Never"}
	allowed := map[key]int{a: 2, b: 1}
	found := []finding{{"a.go", 1, "Kerf.Never", "x"}, {"a.go", 2, "Kerf.Never", "y"}, {"b.go", 1, "Kerf.Never", "z"}}
	if wrong := compare(allowed, count(found), found); len(wrong) > 0 {
		t.Errorf("as many as allowed: %q", wrong)
	}
	more := append(slices.Clone(found), finding{"c.go", 3, "Kerf.Never", "new"})
	if wrong := compare(allowed, count(more), more); !slices.Equal(wrong, []string{"c.go:3: new"}) {
		t.Errorf("a new file: %q", wrong)
	}
	if wrong := compare(allowed, count(found[1:]), found[1:]); len(wrong) != 1 || !strings.HasPrefix(wrong[0],
		"a.go: 1 ") {
		t.Errorf("fewer than allowed: %q", wrong)
	}
	if low := lowered(allowed, count(more[2:])); !maps.Equal(low, map[key]int{b: 1}) {
		t.Errorf("lowered to %v", low)
	}
	if again, err := parse(format(allowed)); err != nil || !maps.Equal(again, allowed) {
		t.Errorf("read back as %v, %v", again, err)
	}
	for _, bad := range []string{"a.go Kerf.Never 0\n", "a.go Kerf.Never\n", "a.go x 1\na.go x 1\n"} {
		if _, err := parse(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// A stub takes the place of Vale, which the tests of this module do not build.
func TestCheck(t *testing.T) {
	tree := t.TempDir()
	vale := filepath.Join(tree, "vale")
	script := "#!/bin/sh\necho '{\"comments/0.txt\": [{\"Check\": \"R\", \"Message\": \"m\", \"Line\": 1, \"Span\": " +
		"[1, 1]}]}'\n"
	for name, data := range map[string]string{vale: script, filepath.Join(tree, "a.go"): example} {
		if err := os.WriteFile(name, []byte(data), 0o700); err != nil { // #nosec G306 -- a program
			t.Fatal(err)
		}
	}
	found, err := check(vale, tree, tree)
	if want := []finding{{"a.go", 4, "R", "m"}}; err != nil || !slices.Equal(found, want) {
		t.Errorf("%v, %v, want %v", found, err, want)
	}
	if err := os.WriteFile(vale, []byte("#!/bin/sh\nexit 1\n"), 0o700); err != nil { // #nosec G306 -- a program
		t.Fatal(err)
	}
	if _, err := check(vale, tree, tree); err == nil {
		t.Error("no error from a Vale that fails")
	}
}
