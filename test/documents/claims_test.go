// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package documents_test reads the documentation for what no link checker sees: whether the status table of the README
// names proofs that exist, and whether pages keep the rules of form.
package documents_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/test/documents"
)

var (
	// states are those that a claim of the README can have.
	states = []string{"hardware", "Kubernetes", "simulator", "unproven"}
	// folders have the tests that prove a state.
	folders = map[string][]string{
		"hardware": {"test/kit/reports/"}, "Kubernetes": {"test/e2e.", "test/e2e/"},
		"simulator": {"test/machine.", "docs/"}, "unproven": {"docs/"},
	}
	linked = regexp.MustCompile(`\]\(([^)#\s]+)`)
	// inline is a mark in running text, which the table replaces.
	inline = regexp.MustCompile(`\((real|simulated|unproven)\b`)
)

// claims are the rows of the table below the heading Status: claim, state, proof.
func claims(text string) (rows [][]string) {
	_, after, _ := strings.Cut(text, "\n## Status\n")
	after, _, _ = strings.Cut(after, "\n## ")
	for line := range strings.Lines(after) {
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---") || strings.HasPrefix(line, "| claim ") {
			continue
		}
		var row []string
		for cell := range strings.SplitSeq(strings.Trim(strings.TrimSpace(line), "|"), "|") {
			row = append(row, strings.TrimSpace(cell))
		}
		rows = append(rows, row)
	}
	return rows
}

// unproven lists what is wrong with the rows: a state that does not exist, a test or a report that does not exist, or a
// proof that cannot show the state.
func unproven(rows [][]string, tests map[string][]string, exists func(path string) bool) (out []string) {
	for _, row := range rows {
		if len(row) != 3 || !slices.Contains(states, row[1]) {
			out = append(out, fmt.Sprintf("%q: want a claim, a state of %q and a proof", row, states))
			continue
		}
		wrong, named := documents.Misnamed(row[2], tests)
		for _, problem := range wrong {
			out = append(out, fmt.Sprintf("%q: %s", row[0], problem))
		}
		reports := linked.FindAllStringSubmatch(row[2], -1)
		for _, r := range reports {
			if !exists(r[1]) {
				out = append(out, fmt.Sprintf("%q: there is no report %s", row[0], r[1]))
			}
		}
		if named+len(reports) == 0 {
			out = append(out, fmt.Sprintf("%q has no proof", row[0]))
			continue
		}
		if !slices.ContainsFunc(folders[row[1]], func(folder string) bool { return strings.Contains(row[2], folder) }) {
			out = append(out, fmt.Sprintf("%q: %s does not show the state %q", row[0], row[2], row[1]))
		}
	}
	return out
}

func TestStatusOfTheReadme(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	tests, err := documents.Tests("../..")
	if err != nil {
		t.Fatal(err)
	}
	rows := claims(string(text))
	if len(rows) < 15 {
		t.Errorf("the table has %d rows", len(rows))
	}
	for _, problem := range unproven(rows, tests, func(path string) bool {
		_, err := os.Stat(filepath.Join("../..", path))
		return err == nil
	}) {
		t.Error(problem)
	}
	if mark := inline.FindString(string(text)); mark != "" {
		t.Errorf("README.md has the inline mark %q: use the table", mark)
	}
}

// The README installs Kerf as the quick start does, whose commands make walk types.
func TestReadmeInstallsAsTheQuickStart(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/start/quick-start.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(readme), "\n## Install on a cluster\n\n```\n")
	block, _, found := strings.Cut(after, "```\n")
	here := strings.NewReplacer(" NODE ", " node-1 node-2 ")
	commands := strings.Split(strings.TrimSpace(here.Replace(block)), "\n")
	if !found || len(commands) != 4 {
		t.Fatalf("the README installs with %q", commands)
	}
	for _, command := range commands {
		if !strings.Contains(string(page), "\n"+command) {
			t.Errorf("the quick start does not type %q", command)
		}
	}
}

func TestFirstPagesAreShort(t *testing.T) {
	for page, most := range map[string]int{"README.md": 150, "docs/start/quick-start.md": 80} {
		text, err := os.ReadFile(filepath.Join("../..", page))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), "\n"); n > most {
			t.Errorf("%s has %d lines, want %d at most", page, n, most)
		}
	}
}

func TestUnproven(t *testing.T) {
	tests := map[string][]string{"test/e2e": {"TestOne"}, "test/machine": {"TestTwo"}}
	exists := func(path string) bool { return path == "docs/a.md" }
	for row, want := range map[string]int{
		"| flies | Kubernetes | `test/e2e.TestOne` |":           0,
		"| flies | simulator | `test/machine.TestTwo` |":        0,
		"| flies | simulator | [a](docs/a.md#b) |":              0,
		"| flies | unproven | [a](docs/a.md) |":                 0,
		"| flies | Kubernetes | `test/machine.TestTwo` |":       1,
		"| flies | Kubernetes | `test/e2e.TestTwo` |":           1,
		"| flies | simulator | [b](docs/b.md) |":                1,
		"| flies | simulator | it does |":                       1,
		"| flies | hardware | `test/e2e.TestOne` |":             1,
		"| flies | maybe | `test/e2e.TestOne` |":                1,
		"| flies | `test/e2e.TestOne` |":                        1,
		"| flies | Kubernetes | `test/e2e.TestOne` and TestX |": 1,
	} {
		got := unproven(claims("# A\n\n## Status\n\n| claim | state | proof |\n|---|---|---|\n"+row+
			"\n\n## Next\n| x |\n"), tests, exists)
		if len(got) != want {
			t.Errorf("%s: %q, want %d problems", row, got, want)
		}
	}
}
