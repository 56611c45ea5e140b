// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package core_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/test/kit/core"
)

// folder has each report that the project keeps, as JSON and as Markdown.
const folder = "../reports"

func reports(t *testing.T) map[string]core.Report {
	t.Helper()
	files, err := filepath.Glob(folder + "/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no report in %s: %v", folder, err)
	}
	out := map[string]core.Report{}
	for _, file := range files {
		var r core.Report
		data, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(data, &r)
		}
		if err != nil {
			t.Fatal(err)
		}
		out[strings.TrimSuffix(filepath.Base(file), ".json")] = r
	}
	return out
}

// Each claim of a report exists, belongs to its step, and is judged once. The text is that of the numbers, and a report
// of the simulator says so.
func TestReports(t *testing.T) {
	all := reports(t)
	simulator := all["simulator"]
	for name, r := range all {
		if !r.Simulated {
			r.Other = &simulator
		}
		seen := map[string]bool{}
		for _, x := range r.Results() {
			if _, ok := core.ClaimText(x.Claim); !ok || seen[x.Claim] {
				t.Errorf("%s: %q is no claim, or is there twice", name, x.Claim)
			}
			seen[x.Claim] = true
			if !slices.Contains(core.Verdicts(), x.Verdict) || x.Detail == "" {
				t.Errorf("%s: %+v has no verdict or no detail", name, x)
			}
		}
		steps := core.Steps()
		for _, s := range r.Steps {
			at := slices.IndexFunc(steps, func(x core.Step) bool { return x.ID == s.ID })
			if at < 0 {
				t.Errorf("%s: %q is no step", name, s.ID)
				continue
			}
			for _, x := range s.Results {
				if !slices.Contains(steps[at].Claims, x.Claim) {
					t.Errorf("%s: step %s does not judge %s", name, s.ID, x.Claim)
				}
			}
		}
		if *update {
			if err := os.WriteFile(filepath.Join(folder, name+".md"), []byte(r.Markdown()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		text, err := os.ReadFile(filepath.Join(folder, name+".md"))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(r.Markdown(), string(text)); d != "" {
			t.Errorf("%s.md is not the text of %s.json:\n%s", name, name, d)
		}
		if r.Simulated != strings.HasPrefix(name, "simulator") || r.Simulated != strings.Contains(string(text),
			"**Simulated:**") {
			t.Errorf("%s: simulated is %t, and the name or the text says otherwise", name, r.Simulated)
		}
	}
}

// The status table of the README has a row for each claim that the newest report of a real GPU has proven, and for no
// other.
func TestReadme(t *testing.T) {
	data, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	all := reports(t)
	var names []string
	for name, r := range all {
		if !r.Simulated {
			names = append(names, name)
		}
	}
	want := 0
	if len(names) > 0 {
		name := slices.Max(names) // they begin with their date
		for _, x := range all[name].Results() {
			text, _ := core.ClaimText(x.Claim)
			row := fmt.Sprintf("| %s | hardware | [report](test/kit/reports/%s.md) |\n", text, name)
			if x.Verdict == core.Proven {
				want++
				if !strings.Contains(string(data), row) {
					t.Errorf("the status table of README.md lacks the row %s", row)
				}
			}
		}
	}
	if got := strings.Count(string(data), "| hardware |"); got != want {
		t.Errorf("the status table of README.md has %d rows with the state hardware, and the newest report has "+
			"proven %d claims", got, want)
	}
}
