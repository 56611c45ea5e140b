// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// key counts findings: of one rule in one file.
type key struct{ file, rule string }

func count(found []finding) map[key]int {
	out := map[key]int{}
	for _, f := range found {
		out[key{f.file, f.rule}]++
	}
	return out
}

// compare returns the findings of files that have more than allowed, and a line for each number that is too high.
func compare(allowed, have map[key]int, found []finding) []string {
	var wrong []string
	for _, f := range found {
		if k := (key{f.file, f.rule}); have[k] > allowed[k] {
			wrong = append(wrong, f.String())
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(allowed), order) {
		if n := allowed[k]; have[k] < n {
			wrong = append(wrong, fmt.Sprintf("%s: %d findings of %s, and %d are allowed: run 'make prose-update'",
				k.file, have[k], k.rule, n))
		}
	}
	return wrong
}

// lowered never raises a number, and adds none.
func lowered(allowed, have map[key]int) map[key]int {
	out := map[key]int{}
	for k, n := range allowed {
		if n = min(n, have[k]); n > 0 {
			out[k] = n
		}
	}
	return out
}

// parse reads lines of file, rule and number.
func parse(text string) (map[key]int, error) {
	out := map[key]int{}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var k key
		var n int
		if _, err := fmt.Sscanf(line, "%s %s %d", &k.file, &k.rule, &n); err != nil {
			return nil, fmt.Errorf("line %q: %w", line, err)
		}
		if n <= 0 || out[k] > 0 {
			return nil, fmt.Errorf("line %q: want a number above 0, and one line for a file and rule", line)
		}
		out[k] = n
	}
	return out, nil
}

func format(allowed map[key]int) string {
	var b strings.Builder
	b.WriteString("# Findings of Vale that comments and strings of a Go file may still have. These numbers " +
		"may only shrink.\n")
	for _, k := range slices.SortedFunc(maps.Keys(allowed), order) {
		fmt.Fprintf(&b, "%s %s %d\n", k.file, k.rule, allowed[k])
	}
	return b.String()
}

func order(a, b key) int { return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.rule, b.rule)) }
