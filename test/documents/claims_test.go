// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package documents_test reads the documents for what no link checker sees: whether each claim of the README says how far to
// believe it. It does not know what is true; that is for who writes, and for the tests that a claim names.
package documents_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

var (
	// mark says how far to believe what stands before it.
	mark = regexp.MustCompile(`\((real|simulated|unproven)\b[^()]*\)`)
	// seen is how a row of the table says so.
	seen = regexp.MustCompile(`\b(real|simulated|unproven)\b`)
)

// without is the comment above a block that claims nothing.
const without = "<!-- claims: none -->"

// block is a paragraph, a list, a table or a heading, with the code that follows it.
type block struct {
	line  int
	lines []string
}

// blocks are those of a Markdown text. Code is part of what stands before it, and none of its lines is looked at.
func blocks(text string) (out []block) {
	code, apart := false, true
	for i, l := range strings.Split(text, "\n") {
		switch {
		case strings.HasPrefix(l, "```"):
			code, apart = !code, true
		case code:
		case strings.TrimSpace(l) == "":
			apart = true
		default:
			if apart || strings.HasPrefix(l, "#") {
				out = append(out, block{line: i + 1})
			}
			last := &out[len(out)-1]
			last.lines, apart = append(last.lines, l), strings.HasPrefix(l, "#")
		}
	}
	return out
}

// unmarked are the claims of a text that do not say how far to believe them. What the meaning of the marks is said in, and what is
// declared to claim nothing, are no claims; of a table each row is one.
func unmarked(text string) (out []string) {
	for _, b := range blocks(text) {
		first, all := b.lines[0], strings.Join(b.lines, " ")
		switch {
		case strings.HasPrefix(first, "#"), first == without:
		case strings.HasPrefix(first, "|"):
			for i, row := range b.lines {
				cells := strings.Split(strings.Trim(row, "|"), "|")
				if i < 2 || seen.MatchString(cells[len(cells)-1]) {
					continue
				}
				out = append(out, fmt.Sprintf("line %d: the row %q", b.line+i, strings.TrimSpace(cells[0])))
			}
		case strings.Contains(all, "*Real* means:"):
		case !mark.MatchString(all):
			out = append(out, fmt.Sprintf("line %d: %q", b.line, first))
		}
	}
	return out
}

func TestEveryClaimOfTheReadmeIsMarked(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, claim := range unmarked(string(text)) {
		t.Errorf("README.md, %s: nothing says how far to believe it; write (real), (simulated) or (unproven), or %s above what claims nothing", claim, without)
	}
	if n := len(mark.FindAllString(string(text), -1)); n < 15 {
		t.Errorf("only %d marks were found", n)
	}
}

func TestUnmarked(t *testing.T) {
	for text, want := range map[string]int{
		"# A heading\n\nIt flies (real).\n":                                    0,
		"# A heading\n\nIt flies.\n":                                           1,
		"It flies (really).\n":                                                 1,
		"It flies (simulated;\nunproven in the air).\n":                        0,
		"It flies:\n\n```\nfly  # (real)\n```\n":                               1,
		"It flies (real):\n\n```\nfly\n\nhigh\n```\n\nAnd lands.\n":            1,
		without + "\n- [a](a.md)\n- [b](b.md)\n":                               0,
		without + "\n- [a](a.md)\n\nIt flies.\n":                               1,
		"| claim | seen |\n|---|---|\n| flies | real |\n| lands | not yet |\n": 1,
		"*Real* means: seen.\n":                                                0,
		"## How\nIt flies.\n":                                                  1,
	} {
		if got := unmarked(text); len(got) != want {
			t.Errorf("%q: %q, want %d", text, got, want)
		}
	}
}
