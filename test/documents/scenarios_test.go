// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package documents_test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/test/documents"
)

// scenariosPer is the number of scenarios of each group, 124 in all.
var scenariosPer = map[string]int{"A": 24, "B": 19, "C": 22, "D": 14, "E": 15, "F": 16, "G": 8, "H": 6}

// scenariosUntested are those that may name no test. Each says why in its last column.
var scenariosUntested = []string{"C20"}

// onlyByTarget gives the make target of tests that `make test` and `make e2e` skip.
var onlyByTarget = []struct {
	test   *regexp.Regexp
	target string
}{
	{regexp.MustCompile(`^test/machine\.TestMatrix$`), "matrix"},
	{regexp.MustCompile(`^test/machine\.TestFigures`), "figures"},
	{regexp.MustCompile(`^test/machine\.TestAttacks$`), "attacks"},
	{regexp.MustCompile(`^test/e2e\.TestBench`), "bench"},
	{regexp.MustCompile(`\.Benchmark`), "bench"},
	{regexp.MustCompile(`^test/e2e\.TestUpgradeFrom$`), "e2e-upgrade"},
	{regexp.MustCompile(`^test/guest\.`), "nightly-guest"},
}

var (
	scenarioRow  = regexp.MustCompile(`(?m)^\| ([A-Z]\d+) \| ([^|]*) \| ([^|]*) \| ([^|]*) \| ([^|]*) ?\|$`)
	scenarioTest = regexp.MustCompile("^`([^`]+)`$")
	makeTarget   = regexp.MustCompile("`make ([a-z0-9-]+)`")
)

// scenario is a row of docs/reference/scenarios.md.
type scenario struct {
	id, text, kind, missing string
	tests                   []string
}

// scenarios returns the rows of a page and what is wrong with their form.
func scenarios(page string) (rows []scenario, wrong []string) {
	for _, m := range scenarioRow.FindAllStringSubmatch(page, -1) {
		s := scenario{id: m[1], text: m[2], kind: m[3], missing: strings.TrimSpace(m[5])}
		for cell := range strings.SplitSeq(m[4], ", ") {
			if name := scenarioTest.FindStringSubmatch(cell); name != nil {
				s.tests = append(s.tests, name[1])
			} else if cell != "none" {
				wrong = append(wrong, fmt.Sprintf("%s: %q is no test", s.id, cell))
			}
		}
		rows = append(rows, s)
	}
	if lines := len(regexp.MustCompile(`(?m)^\| [A-Z]\d`).FindAllString(page, -1)); lines != len(rows) {
		wrong = append(wrong, fmt.Sprintf("%d rows, %d of them readable", lines, len(rows)))
	}
	return rows, wrong
}

// kindOf returns the kinds of a row with these tests, in order.
func kindOf(tests []string) string {
	if len(tests) == 0 {
		return "none"
	}
	kinds, targets := map[string]bool{}, map[string]bool{}
	for _, test := range tests {
		target := ""
		for _, o := range onlyByTarget {
			if target == "" && o.test.MatchString(test) {
				target = o.target
			}
		}
		switch {
		case target != "":
			targets["`make "+target+"`"] = true
		case strings.HasPrefix(test, "test/machine."):
			kinds["machine"] = true
		case strings.HasPrefix(test, "test/e2e."):
			kinds["e2e"] = true
		default:
			kinds["unit"] = true
		}
	}
	var out []string
	for _, kind := range []string{"unit", "machine", "e2e"} {
		if kinds[kind] {
			out = append(out, kind)
		}
	}
	if len(targets) > 0 {
		out = append(out, "nightly ("+strings.Join(slices.Sorted(maps.Keys(targets)), ", ")+")")
	}
	return strings.Join(out, ", ")
}

// scenarioErrors returns what is wrong with a row, given the tests and the Makefile of the repository.
func scenarioErrors(s scenario, tests map[string][]string, makefile string) (wrong []string) {
	if words := len(strings.Fields(s.text)); words < 3 || words > 25 || !strings.HasSuffix(s.text, ".") {
		wrong = append(wrong, "the scenario is no short sentence")
	}
	for _, test := range s.tests {
		misnamed, n := documents.Misnamed(test, tests)
		if wrong = append(wrong, misnamed...); n != 1 {
			wrong = append(wrong, fmt.Sprintf("%q is no name of a test", test))
		}
	}
	if want := kindOf(s.tests); s.kind != want {
		wrong = append(wrong, fmt.Sprintf("the kind is %q, want %q", s.kind, want))
	}
	for _, m := range makeTarget.FindAllStringSubmatch(s.kind, -1) {
		if !strings.Contains(makefile, "\n"+m[1]+":") {
			wrong = append(wrong, "the Makefile has no target "+m[1])
		}
	}
	untested := slices.Contains(scenariosUntested, s.id)
	switch {
	case len(s.tests) == 0 && !untested:
		wrong = append(wrong, "no test")
	case len(s.tests) == 0 && s.missing == "":
		wrong = append(wrong, "no test, and no reason")
	case len(s.tests) > 0 && untested:
		wrong = append(wrong, "has a test now: take it off the list of untested scenarios")
	}
	return wrong
}

// summary is the sentences at the top of the page that count its rows.
func summary(rows []scenario) string {
	full, part := 0, 0
	for _, s := range rows {
		switch {
		case len(s.tests) > 0 && s.missing == "":
			full++
		case len(s.tests) > 0:
			part++
		}
	}
	return fmt.Sprintf("Kerf has tests for %d of %d scenarios of reliability and security. "+
		"Tests cover %d scenarios completely and %d in part.", full+part, len(rows), full, part)
}

// docs/reference/scenarios.md has each scenario once, names tests that exist, and counts its rows truthfully.
func TestScenarios(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference/scenarios.md")
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	tests, err := documents.Tests("../..")
	if err != nil {
		t.Fatal(err)
	}
	rows, wrong := scenarios(string(text))
	next := map[string]int{}
	for _, s := range rows {
		group := s.id[:1]
		if next[group]++; s.id != fmt.Sprintf("%s%d", group, next[group]) {
			wrong = append(wrong, fmt.Sprintf("%s where %s%d belongs", s.id, group, next[group]))
		}
		for _, w := range scenarioErrors(s, tests, string(makefile)) {
			wrong = append(wrong, s.id+": "+w)
		}
	}
	for _, w := range wrong {
		t.Error(w)
	}
	if !maps.Equal(next, scenariosPer) {
		t.Errorf("scenarios per group: %v, want %v", next, scenariosPer)
	}
	if want := summary(rows); !strings.Contains(string(text), want) {
		t.Errorf("the page does not say: %s", want)
	}
}

// A row with a missing test, a wrong kind or an absent target is found.
func TestScenarioErrors(t *testing.T) {
	tests := map[string][]string{"a": {"TestOne"}, "test/machine": {"TestTwo", "TestMatrix"}}
	const text, makefile = "A thing happens.", "\nmatrix: build\n"
	for name, tc := range map[string]struct {
		row  scenario
		want int
	}{
		"fine": {scenario{"A1", text, "unit, machine", "", []string{"a.TestOne", "test/machine.TestTwo"}},
			0},
		"in part": {scenario{"A1", text, "unit", "a gap", []string{"a.TestOne"}}, 0},
		"nightly": {scenario{"A1", text, "nightly (`make matrix`)", "", []string{"test/machine.TestMatrix"}},
			0},
		"no target":         {scenario{"A1", text, "nightly", "", []string{"test/machine.TestMatrix"}}, 1},
		"no test":           {scenario{"A1", text, "none", "a gap", nil}, 1},
		"untested":          {scenario{"C20", text, "none", "all", nil}, 0},
		"untested, no why":  {scenario{"C20", text, "none", "", nil}, 1},
		"tested by now":     {scenario{"C20", text, "unit", "", []string{"a.TestOne"}}, 1},
		"another folder":    {scenario{"A1", text, "unit", "", []string{"b.TestOne"}}, 1},
		"another kind":      {scenario{"A1", text, "e2e", "", []string{"a.TestOne"}}, 1},
		"no name of a test": {scenario{"A1", text, "unit", "", []string{"a.One"}}, 1},
		"no sentence":       {scenario{"A1", "a", "unit", "", []string{"a.TestOne"}}, 1},
	} {
		if got := scenarioErrors(tc.row, tests, makefile); len(got) != tc.want {
			t.Errorf("%s: %q, want %d", name, got, tc.want)
		}
	}
	nightly := scenario{"A1", text, "nightly (`make matrix`)", "", []string{"test/machine.TestMatrix"}}
	if got := scenarioErrors(nightly, tests, ""); len(got) != 1 {
		t.Errorf("a target that does not exist: %q", got)
	}
	page := "| A1 | A thing happens. | unit | `a.TestOne` |  |\n| A2 | A thing | unit |\n" +
		"| A3 | A thing happens. | unit | nothing | x |\n"
	if rows, wrong := scenarios(page); len(rows) != 2 || len(wrong) != 2 {
		t.Errorf("%d rows, wrong %q", len(rows), wrong)
	}
}
