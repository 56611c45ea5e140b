// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package documents_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	// maxOldPages may only shrink: these pages were written before the rules.
	maxOldPages = 0
	// maxWords of a page, maxAllWords of all pages, and maxCell are the bounds outside of docs/reference.
	maxWords, maxAllWords, maxCell = 1500, 35000, 120
)

var (
	heading = regexp.MustCompile(`^#{1,6} +(.*?) *$`)
	address = regexp.MustCompile(`\]\([^)\s]+\)`)
	word    = regexp.MustCompile(`\S*[\pL\pN]\S*`)
)

// pages are README.md, CONTRIBUTING.md and the pages of docs, by their paths from the root.
func pages(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	read := func(path string) {
		text, err := os.ReadFile(filepath.Join("../..", path))
		if err != nil {
			t.Fatal(err)
		}
		out[path] = string(text)
	}
	read("README.md")
	read("CONTRIBUTING.md")
	err := filepath.WalkDir("../../docs", func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && filepath.Ext(path) == ".md" {
			read(strings.TrimPrefix(path, "../../"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// oldPages are those that the rules do not bind yet.
func oldPages(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../tools/vale/old-pages.txt")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(text))
}

func TestOldPagesBecomeFewer(t *testing.T) {
	all, old := pages(t), oldPages(t)
	if len(old) > maxOldPages {
		t.Errorf("tools/vale/old-pages.txt has %d pages, %d are allowed: write new pages by the rules", len(old),
			maxOldPages)
	}
	for _, page := range old {
		if _, exists := all[page]; !exists {
			t.Errorf("tools/vale/old-pages.txt names %s, which does not exist: remove the line", page)
		}
	}
}

// layout lists what is wrong with the form of a page: repeated headings, too many words, long table cells.
func layout(path, text string) (out []string) {
	reference, code := strings.HasPrefix(path, "docs/reference/"), false
	seen := map[string]bool{}
	for i, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
			continue
		}
		if code {
			continue
		}
		prose := address.ReplaceAllString(line, "]")
		if m := heading.FindStringSubmatch(line); m != nil {
			key := strings.ToLower(m[1])
			if seen[key] {
				out = append(out, fmt.Sprintf("%s:%d: the heading %q is repeated", path, i+1, m[1]))
			}
			seen[key] = true
		}
		if reference || !strings.HasPrefix(line, "|") {
			continue
		}
		for cell := range strings.SplitSeq(strings.Trim(strings.ReplaceAll(prose, `\|`, "/"), "|"), "|") {
			if n := len([]rune(strings.TrimSpace(cell))); n > maxCell {
				out = append(out, fmt.Sprintf("%s:%d: a table cell has %d characters, want %d at most", path, i+1, n,
					maxCell))
			}
		}
	}
	if n := wordsIn(text); !reference && n > maxWords {
		out = append(out, fmt.Sprintf("%s: %d words, want %d at most", path, n, maxWords))
	}
	return out
}

// wordsIn counts the words of a page, without code blocks and addresses.
func wordsIn(text string) (n int) {
	code := false
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			code = !code
		case !code:
			n += len(word.FindAllString(address.ReplaceAllString(line, "]"), -1))
		}
	}
	return n
}

func TestDocsAreShort(t *testing.T) {
	sum := 0
	for path, text := range pages(t) {
		if strings.HasPrefix(path, "docs/") && !strings.HasPrefix(path, "docs/reference/") {
			sum += wordsIn(text)
		}
	}
	if t.Logf("%d words", sum); sum > maxAllWords {
		t.Errorf("docs/ without the reference has %d words, want %d at most", sum, maxAllWords)
	}
}

func TestLayoutOfPages(t *testing.T) {
	old := oldPages(t)
	for path, text := range pages(t) {
		if slices.Contains(old, path) {
			continue
		}
		for _, problem := range layout(path, text) {
			t.Error(problem)
		}
	}
}

// The index links every page of docs.
func TestIndexLinksEveryPage(t *testing.T) {
	all := pages(t)
	for path := range all {
		page, inside := strings.CutPrefix(path, "docs/")
		if inside && page != "README.md" &&
			!regexp.MustCompile(`\]\(`+regexp.QuoteMeta(page)+`[)#]`).MatchString(all["docs/README.md"]) {
			t.Errorf("docs/README.md does not link %s", path)
		}
	}
}

func TestLayout(t *testing.T) {
	long := strings.Repeat("x", maxCell+1)
	for text, want := range map[string]int{
		"# A\n\n## B\n\n## b\n":                        1,
		"# A\n\n```\n# A\n```\n":                       0,
		"| a | " + long + " |\n":                       1,
		"| a | [x](" + long + ") |\n":                  0,
		"```\n| " + long + " |\n```\n":                 0,
		strings.Repeat("w ", maxWords):                 0,
		strings.Repeat("w ", maxWords+1):               1,
		"```\n" + strings.Repeat("w ", 2000) + "\n```": 0,
	} {
		if got := layout("docs/a.md", text); len(got) != want {
			t.Errorf("%.40q: %q, want %d problems", text, got, want)
		}
	}
	if got := layout("docs/reference/a.md", "| "+long+" |\n"+strings.Repeat("w ", 2000)); len(got) != 0 {
		t.Errorf("a reference page: %q", got)
	}
	if got := layout("docs/reference/a.md", "# A\n# A\n"); len(got) != 1 {
		t.Errorf("repeated headings in a reference page: %q", got)
	}
}
