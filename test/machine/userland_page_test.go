// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
)

// userlandPage is where the tables go.
var userlandPage = flag.String("userland-page", "",
	"with -userland or -nvidia-tools: write the tables into this page, if all rows were run and passed")

const pageOfUserland = "../../docs/reference/userland.md"

// userlandHeadings are the headings of the page's tables.
const (
	othersHeading = "## Programs of others"
	toolsHeading  = "## Go programs of NVIDIA"
	ownHeading    = "## Own programs on NVIDIA's CUDA runtime"
)

const userlandColumns = "| program | version | native | driver | MPS | libkerf |\n|---|---|---|---|---|---|\n"

// writeUserlandPage replaces the tables below these headings.
func writeUserlandPage(t *testing.T, tables map[string]string) {
	t.Helper()
	if *userlandPage == "" || t.Failed() || *userlandRows != "" {
		return
	}
	for _, table := range tables {
		if strings.Contains(table, "not available") {
			return
		}
	}
	text, err := os.ReadFile(*userlandPage)
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	for heading, table := range tables {
		page = withTable(t, page, heading, table)
	}
	if err := os.WriteFile(*userlandPage, []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
}

// withTable is a page with the first table below a heading replaced.
func withTable(t *testing.T, page, heading, table string) string {
	t.Helper()
	before, after, found := strings.Cut(page, heading+"\n")
	start := strings.Index(after, "\n| ")
	if !found || start < 0 {
		t.Fatalf("the page has no table below %q", heading)
	}
	end := strings.Index(after[start+1:], "\n\n")
	if end < 0 {
		end = len(after) - start - 2
	}
	return before + heading + "\n" + after[:start+1] + table + after[start+1+end+1:]
}

// rowNames are the first cells of the table below a heading.
func rowNames(t *testing.T, page, heading string) (names []string) {
	t.Helper()
	_, after, found := strings.Cut(page, heading+"\n")
	if !found {
		t.Fatalf("the page has no %q", heading)
	}
	section, _, _ := strings.Cut(after, "\n## ")
	for line := range strings.Lines(section) {
		if name, ok := strings.CutPrefix(line, "| "); ok {
			name, _, _ = strings.Cut(name, " | ")
			names = append(names, name)
		}
	}
	return names[1:] // without the head
}

// TestUserlandPage compares the rows of the page with the programs that make userland runs.
func TestUserlandPage(t *testing.T) {
	text, err := os.ReadFile(pageOfUserland)
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	want := map[string][]string{}
	for _, g := range (&userland{}).guests() {
		want[g.heading()] = append(want[g.heading()], g.name)
	}
	for _, tool := range nvidiaPrograms() {
		want[toolsHeading] = append(want[toolsHeading], tool.name)
	}
	for heading, names := range want {
		if got := rowNames(t, page, heading); !slices.Equal(got, names) {
			t.Errorf("below %q: %q, want %q; run make userland", heading, got, names)
		}
	}
	if n := len(want[othersHeading]) + len(want[toolsHeading]); n < 26 {
		t.Errorf("the page has %d programs that others wrote, want 20 besides the 6 that use their libraries", n)
	}
	for _, cell := range []string{"failed", "other result", "over its cap |", "not available |"} {
		if strings.Contains(page, "| "+cell) {
			t.Errorf("the page has a row with %q", cell)
		}
	}
}

// A table is replaced, and what follows it stays.
func TestWithTable(t *testing.T) {
	const page = "# A\n\n## B\n\ntext\n\n| a |\n|---|\n| 1 |\n\n## C\n\n| c |\n|---|\n| 2 |\n"
	got := withTable(t, withTable(t, page, "## B", "| b |\n|---|\n| 3 |\n| 4 |\n"), "## C", "| d |\n|---|\n| 5 |\n")
	const want = "# A\n\n## B\n\ntext\n\n| b |\n|---|\n| 3 |\n| 4 |\n\n## C\n\n| d |\n|---|\n| 5 |\n"
	if got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
