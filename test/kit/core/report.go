// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Fact is a number or a text that a step recorded.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Outcome is what one step left.
type Outcome struct {
	ID    string `json:"id"`
	Title string `json:"title"`
	// Seconds is how long it ran; 0: not at all.
	Seconds float64 `json:"seconds"`
	// Ended says why it did not run to its end. It is empty otherwise.
	Ended   string   `json:"ended,omitempty"`
	Results []Result `json:"results"`
	Facts   []Fact   `json:"facts"`
}

// Report is a run.
type Report struct {
	Kit string `json:"kit"`
	// Simulated is true if no real GPU ran.
	Simulated bool      `json:"simulated"`
	Machine   []Fact    `json:"machine"`
	Changed   []string  `json:"changed_settings"`
	Compared  bool      `json:"compared_settings"`
	Steps     []Outcome `json:"steps"`

	// Other is what the text shows next to the facts of this report: what the simulator gave.
	Other *Report `json:"-"`
}

// Complete gives each claim of a step that has no result a verdict, in the order of the step's claims. Several results
// on a claim become one: the worst counts, and the details of that verdict are joined. A step that did not come to its
// end proves nothing, but may have disproven something.
func Complete(s Step, o Outcome) Outcome {
	o.ID, o.Title = s.ID, s.Title
	var out []Result
	for _, claim := range s.Claims {
		r := Unreached(claim, cmp.Or(o.Ended, "the step has no result for it"))
		if found := slices.Collect(of(o.Results, claim)); len(found) > 0 {
			r = worst(found)
		}
		if r.Verdict == Proven && o.Ended != "" { // a part proves nothing
			r = Unreached(claim, o.Ended+"; so far: "+r.Detail)
		}
		out = append(out, r)
	}
	o.Results = out
	return o
}

func of(results []Result, claim string) func(func(Result) bool) {
	return func(yield func(Result) bool) {
		for _, r := range results {
			if r.Claim == claim && !yield(r) {
				return
			}
		}
	}
}

// shown is how many details of a claim the report has. The facts of the step have the others.
const shown = 2

// worst is the first verdict of Verdicts that is there.
func worst(results []Result) Result {
	for _, v := range Verdicts() {
		var details []string
		for _, r := range results {
			if r.Verdict == v && !slices.Contains(details, r.Detail) {
				details = append(details, r.Detail)
			}
		}
		if n := len(details) - shown; n > 1 {
			details = append(details[:shown], fmt.Sprintf("and %d more", n))
		}
		if len(details) > 0 {
			return Result{Claim: results[0].Claim, Verdict: v, Detail: strings.Join(details, "; ")}
		}
	}
	return results[0]
}

// Without is a step that did not run, because the machine lacks something.
func Without(s Step, reason string) Outcome {
	o := Outcome{Ended: reason}
	for _, c := range s.Claims {
		o.Results = append(o.Results, Impossible(c, reason))
	}
	return Complete(s, o)
}

// Settle adds the verdict on settings.
func (r *Report) Settle(before, after Settings) {
	r.Compared = len(before) > 0 // without settings afterwards, each is a difference
	if r.Compared {
		r.Changed = Compare(before, after)
	}
}

// Results are those of all steps, and that on settings.
func (r Report) Results() []Result {
	const claim = "settings-unchanged"
	all := []Result{Impossible(claim, "no setting could be read")}
	if r.Compared {
		all[0] = Is(claim, len(r.Changed) == 0, "%d differences", len(r.Changed))
	}
	for _, s := range r.Steps {
		all = append(all, s.Results...)
	}
	return all
}

// Exit is the exit status of the kit: 3 if a setting differs, 1 if a claim is disproven, else 0.
func (r Report) Exit() int {
	if len(r.Changed) > 0 {
		return 3
	}
	if slices.ContainsFunc(r.Results(), func(x Result) bool { return x.Verdict == Disproven }) {
		return 1
	}
	return 0
}

// Markdown is the report for people.
func (r Report) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Hardware report\n\n")
	if r.Simulated {
		b.WriteString("**Simulated:** the simulated driver made this report. It proves nothing about hardware.\n\n")
	}
	fmt.Fprintf(&b,
		"Kit %s. The [guide to the kit](../../../docs/reference/hardware-kit.md) explains the verdicts.\n\n", r.Kit)
	facts(&b, r.Machine)
	b.WriteString("## Verdicts\n\n| claim | statement | verdict | detail |\n|---|---|---|---|\n")
	for _, x := range r.Results() {
		text, _ := ClaimText(x.Claim)
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", x.Claim, cell(text), x.Verdict, cell(x.Detail))
	}
	if len(r.Changed) > 0 {
		b.WriteString("\n## Changed settings\n\n")
		for _, c := range r.Changed {
			fmt.Fprintf(&b, "- %s\n", c)
		}
	}
	for _, s := range r.Steps {
		fmt.Fprintf(&b, "\n## %s\n\n", s.Title)
		fmt.Fprintf(&b, "Step `%s`, %.1f s.", s.ID, s.Seconds)
		if s.Ended != "" {
			fmt.Fprintf(&b, " It did not run to its end: %s.", cell(strings.TrimRight(s.Ended, ".")))
		}
		b.WriteString("\n\n")
		facts(&b, s.Facts, r.Other.factsOf(s.ID)...)
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// factsOf are those of a step, by its id.
func (r *Report) factsOf(id string) []Fact {
	if r == nil {
		return nil
	}
	for _, s := range r.Steps {
		if s.ID == id {
			return s.Facts
		}
	}
	return nil
}

// facts writes a table, with a column for the simulator if there is something to compare with.
func facts(b *strings.Builder, list []Fact, other ...Fact) {
	if len(list) == 0 {
		return
	}
	values := map[string]string{}
	for _, f := range other {
		values[f.Name] = f.Value
	}
	if len(other) == 0 {
		b.WriteString("| what | value |\n|---|---|\n")
	} else {
		b.WriteString("| what | value | simulator |\n|---|---|---|\n")
	}
	for _, f := range list {
		fmt.Fprintf(b, "| %s | %s |", cell(f.Name), cell(f.Value))
		if len(other) > 0 {
			fmt.Fprintf(b, " %s |", cell(values[f.Name]))
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
}

// cell is a text that a cell of a table can have.
func cell(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	const most = 300
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + " ..."
	}
	return strings.ReplaceAll(strings.ReplaceAll(text, "|", "\\|"), "<", "&lt;")
}
