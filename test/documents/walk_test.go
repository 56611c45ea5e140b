// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package documents_test

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	walkStep   = regexp.MustCompile("(?m)^\\| (\\d+) \\| `([^`]+)` \\| [^|]+\\. \\|$")
	linkedFile = regexp.MustCompile(`\]\(([^)#]+)`)
)

// steps returns the files of a walk, which is a section of the page "How a grant travels".
func steps(t *testing.T, section string) (files []string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/reference/grant-walk.md")
	if err != nil {
		t.Fatal(err)
	}
	_, walk, found := strings.Cut(string(page), "\n## "+section+"\n")
	if !found {
		t.Fatalf("no section %q", section)
	}
	walk, _, _ = strings.Cut(walk, "\n## ")
	for i, m := range walkStep.FindAllStringSubmatch(walk, -1) {
		if m[1] != strconv.Itoa(i+1) {
			t.Errorf("%s: step %d has the number %s", section, i+1, m[1])
		}
		if _, err := os.Stat("../../" + m[2]); err != nil {
			t.Errorf("%s: step %d: %v", section, i+1, err)
		}
		if slices.Contains(files, m[2]) {
			t.Errorf("%s: step %d enters %s again", section, i+1, m[2])
		}
		files = append(files, m[2])
	}
	if rows := strings.Count(walk, "\n| ") - 1; rows != len(files) {
		t.Errorf("%s: %d rows, %d of them in order", section, rows, len(files))
	}
	return files
}

// A grant passes at most 20 files, and a configuration at most 12 on each of its two ways. Each is entered once.
func TestWalks(t *testing.T) {
	const mostOfGrant, mostOfConfig = 20, 12
	if files := steps(t, "From Allocate to the driver"); len(files) == 0 || len(files) > mostOfGrant {
		t.Errorf("a grant passes %d files, want 1 to %d", len(files), mostOfGrant)
	}
	// The ways part after step 9: one ends with the ledger in step 11, the other with the driver.
	const together, ledger = 9, 11
	files := steps(t, "From a configuration to the GPUs")
	if len(files) <= ledger {
		t.Fatalf("a configuration passes %d files", len(files))
	}
	for _, way := range [][]string{files[:ledger], slices.Concat(files[:together], files[ledger:])} {
		if len(way) > mostOfConfig {
			t.Errorf("a configuration passes %d files, want at most %d: %q", len(way), mostOfConfig, way)
		}
	}
}

// Each question about the code is answered by at most three files.
func TestWhereToFind(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/packages.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n## Where to find\n")
	questions := 0
	for line := range strings.Lines(table) {
		question, answer, ok := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		if !ok || !strings.HasSuffix(question, "?") {
			continue
		}
		questions++
		if files := linkedFile.FindAllStringSubmatch(answer, -1); len(files) == 0 || len(files) > 3 {
			t.Errorf("%s %d files, want 1 to 3", question, len(files))
		}
	}
	if questions < 10 {
		t.Errorf("%d questions", questions)
	}
}
