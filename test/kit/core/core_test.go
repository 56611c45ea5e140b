// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package core_test

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/test/kit/core"
)

func TestVerdicts(t *testing.T) {
	steady := func(units float64, seconds ...int) core.Work {
		return core.Work{Units: units, WallNS: 1e9 * float64(len(seconds)), Seconds: seconds}
	}
	shares := func(a, b core.Work, target float64) []core.Verdict {
		var out []core.Verdict
		for _, r := range core.SharesOf("x", "y", "it", a, b, target) {
			out = append(out, r.Verdict)
		}
		return out
	}
	for name, c := range map[string]struct{ got, want any }{
		"at the bound": {core.AtMost("x", "it", 5, 5, "ms").Verdict, core.Proven},
		"above the bound": {core.AtMost("x", "it", 5.01, 5, "ms"), core.Result{Claim: "x", Verdict: core.Disproven,
			Detail: "it: 5.01 ms (bound: 5 ms)"}},
		"large numbers": {core.AtMost("x", "it", 123456.7, 5, "ns").Detail, "it: 123457 ns (bound: 5 ns)"},
		"near":          {core.Within("x", "it", 0.55, 0.5, 0.1).Verdict, core.Proven},
		"too low":       {core.Within("x", "it", 0.449, 0.5, 0.1).Verdict, core.Disproven},
		"too high":      {core.Within("x", "it", 0.551, 0.5, 0.1).Verdict, core.Disproven},
		"no number":     {core.Within("x", "it", math.NaN(), 0.5, 0.1).Verdict, core.Disproven},
		"one to nine": {shares(steady(20, 10, 10), steady(180, 90, 90), 0.1),
			[]core.Verdict{core.Proven, core.Proven}},
		"one to four": {shares(steady(40, 20, 20), steady(160, 80, 80), 0.1),
			[]core.Verdict{core.Disproven, core.Disproven}},
		"right, but unsteady": {shares(steady(20, 0, 20), steady(180, 100, 80), 0.1),
			[]core.Verdict{core.Proven, core.Disproven}},
		"a second of nothing": {shares(steady(20, 20, 0), steady(180, 180, 0), 0.1),
			[]core.Verdict{core.Proven, core.Disproven}},
		"no one worked": {shares(core.Work{}, core.Work{}, 0.1)[0], core.Disproven},
		"enough for each": {core.AtLeastShares("x", "it", [2]core.Work{steady(30, 30), steady(82, 82)},
			steady(100, 100), 0.1)[1].Verdict, core.Proven},
		"less than its share": {core.AtLeastShares("x", "it", [2]core.Work{steady(30, 30), steady(80, 80)},
			steady(100, 100), 0.1)[1].Verdict, core.Disproven},
		"quantiles": {[]float64{core.Median([]float64{3, 1, 2}), core.Quantile([]float64{1, 2}, 1), core.Median(nil)},
			[]float64{2, 2, 0}},
	} {
		if d := cmp.Diff(c.want, c.got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

func TestComplete(t *testing.T) {
	step := core.Step{ID: "s", Claims: []string{"a", "b", "c"}}
	is := func(claim string, v core.Verdict, detail string) core.Result {
		return core.Result{Claim: claim, Verdict: v, Detail: detail}
	}
	for name, c := range map[string]struct {
		in   core.Outcome
		want []core.Result
	}{
		"all there": {core.Outcome{Results: []core.Result{is("b", core.Proven, "2"), is("a", core.Proven, "1"),
			is("c", core.NotPossible, "3")}},
			[]core.Result{is("a", core.Proven, "1"), is("b", core.Proven, "2"), is("c", core.NotPossible, "3")}},
		"the worst counts": {core.Outcome{Results: []core.Result{is("a", core.Proven, "1"),
			is("a", core.Disproven, "2"), is("a", core.Disproven, "3"), is("a", core.NotPossible, "4")}},
			[]core.Result{is("a", core.Disproven, "2; 3"), is("b", core.NotReached, "the step has no result for it"),
				is("c", core.NotReached, "the step has no result for it")}},
		"many details": {core.Outcome{Results: []core.Result{is("a", core.Proven, "1"), is("a", core.Proven, "1"),
			is("a", core.Proven, "2"), is("a", core.Proven, "3"), is("a", core.Proven, "4"), is("a", core.Proven, "5"),
			is("b", core.Proven, "x"), is("c", core.Proven, "y")}},
			[]core.Result{is("a", core.Proven, "1; 2; and 3 more"), is("b", core.Proven, "x"),
				is("c", core.Proven, "y")}},
		"a part proves nothing": {core.Outcome{Ended: "it crashed", Results: []core.Result{is("a", core.Proven, "1"),
			is("b", core.Disproven, "2")}},
			[]core.Result{is("a", core.NotReached, "it crashed; so far: 1"), is("b", core.Disproven, "2"),
				is("c", core.NotReached, "it crashed")}},
		"a claim of another step": {core.Outcome{Results: []core.Result{is("z", core.Disproven, "1"),
			is("a", core.Proven, "1"), is("b", core.Proven, "1"), is("c", core.Proven, "1")}},
			[]core.Result{is("a", core.Proven, "1"), is("b", core.Proven, "1"), is("c", core.Proven, "1")}},
	} {
		got := core.Complete(step, c.in)
		if d := cmp.Diff(c.want, got.Results); d != "" || got.ID != "s" {
			t.Errorf("%s: %s", name, d)
		}
	}
	if got := core.Without(step, "no GPU"); len(got.Results) != 3 || got.Results[2] != is("c", core.NotPossible,
		"no GPU") {
		t.Errorf("%+v", got)
	}
}

func TestSelect(t *testing.T) {
	for list, want := range map[string]string{
		"":               strings.Join(core.IDs(core.Steps()), ","),
		"caps":           "identity,caps",
		"7, 4":           "identity,caps,shares",
		"identity":       "identity",
		"caps,nonsense":  "error",
		"99":             "error",
		"monitor,15,abi": "identity,abi,serving,monitor",
	} {
		steps, err := core.Select(list)
		got := strings.Join(core.IDs(steps), ",")
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%q: %s (%v), want %s", list, got, err, want)
		}
	}
}

func TestLimit(t *testing.T) {
	three := []core.Step{{Seconds: 30}, {Seconds: 60}, {Seconds: 10}}
	for name, c := range map[string]struct {
		rest []core.Step
		left time.Duration
		want time.Duration
	}{
		"all of it":          {three, 103 * time.Second, 40 * time.Second},
		"earlier ones saved": {three[1:], 143 * time.Second, 140 * time.Second},
		"the last":           {three[2:], 53 * time.Second, 50 * time.Second},
		"very short":         {three, 8 * time.Second, 3 * time.Second},
		"shorter":            {three, 5 * time.Second, 2 * time.Second},
		"nothing is left":    {three, 3 * time.Second, 0},
		"the time is over":   {three, -time.Second, 0},
	} {
		got, ok := core.Limit(c.rest, c.left)
		if ok != (c.want > 0) || ok && (got-c.want).Abs() > time.Millisecond {
			t.Errorf("%s: %v %t, want %v", name, got, ok, c.want)
		}
	}
	for minutes, want := range map[float64]float64{10: 1, 1: 0.6} {
		if got := core.Scale(three, minutes); got != want {
			t.Errorf("scale of %g minutes: %g", minutes, got)
		}
	}
	if got := core.Scale(nil, 1); got != 1 {
		t.Errorf("scale of no steps: %g", got)
	}
}

// The steps are those of the specification, each once, and have their time in a full run.
func TestSteps(t *testing.T) {
	sum, numbers := 0.0, []int{}
	claims := map[string]bool{"settings-unchanged": true}
	for _, s := range core.Steps() {
		sum += s.Seconds
		numbers = append(numbers, s.Number)
		for _, c := range s.Claims {
			if claims[c] {
				t.Errorf("two steps judge %s", c)
			}
			claims[c] = true
		}
	}
	if slices.Sort(numbers); !slices.Equal(numbers, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15}) {
		t.Errorf("steps %v; 14 is the report", numbers)
	}
	if sum > core.FullMinutes*60 {
		t.Errorf("the steps take %.0f s of %d min", sum, core.FullMinutes)
	}
	for _, c := range core.Claims() {
		if !claims[c.ID] {
			t.Errorf("no step judges %s", c.ID)
		}
		delete(claims, c.ID)
		if _, err := os.Stat(filepath.Join("../../../docs", c.Page)); err != nil {
			t.Errorf("%s: %v", c.ID, err)
		}
	}
	if len(claims) > 0 {
		t.Errorf("claims that do not exist: %v", claims)
	}
}

func TestCompare(t *testing.T) {
	before := core.Settings{"GPU-1 mode": "0", "GPU-1 power": "700", "GPU-2 mode": "0"}
	for name, c := range map[string]struct {
		after core.Settings
		want  []string
	}{
		"equal": {core.Settings{"GPU-1 mode": "0", "GPU-1 power": "700", "GPU-2 mode": "0"}, nil},
		"changed": {core.Settings{"GPU-1 mode": "3", "GPU-1 power": "700", "GPU-2 mode": "0"},
			[]string{"GPU-1 mode was 0 before and is 3 now"}},
		"gone": {core.Settings{"GPU-1 mode": "0", "GPU-1 power": "700"},
			[]string{"GPU-2 mode was 0 before and cannot be read any more"}},
		"nvidia-smi answered once": {core.Settings{"GPU-1 mode": "0", "GPU-1 power": "700", "GPU-2 mode": "0",
			core.SMI + "GPU-1 x": "1"}, nil},
		"new": {core.Settings{"GPU-1 ecc": "on", "GPU-1 mode": "0", "GPU-1 power": "700", "GPU-2 mode": "0"},
			[]string{"GPU-1 ecc is on and could not be read before"}},
	} {
		if d := cmp.Diff(c.want, core.Compare(before, c.after)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

func TestExit(t *testing.T) {
	same, other := core.Settings{"a": "1"}, core.Settings{"a": "2"}
	steps := func(v core.Verdict) []core.Outcome {
		return []core.Outcome{{ID: "s", Results: []core.Result{{Claim: "x", Verdict: v, Detail: "d"}}}}
	}
	for name, c := range map[string]struct {
		steps         []core.Outcome
		before, after core.Settings
		want          int
		settings      core.Verdict
	}{
		"good":                        {steps(core.Proven), same, same, 0, core.Proven},
		"nothing possible":            {steps(core.NotPossible), nil, nil, 0, core.NotPossible},
		"disproven":                   {steps(core.Disproven), same, same, 1, core.Proven},
		"a setting differs":           {steps(core.Disproven), same, other, 3, core.Disproven},
		"not read before":             {steps(core.Proven), nil, same, 0, core.NotPossible},
		"cannot be read any more":     {steps(core.Proven), same, nil, 3, core.Disproven},
		"one cannot be read any more": {steps(core.Proven), core.Settings{"a": "1", "b": "1"}, same, 3, core.Disproven},
	} {
		r := core.Report{Steps: c.steps}
		r.Settle(c.before, c.after)
		if got := r.Exit(); got != c.want || r.Results()[0].Verdict != c.settings {
			t.Errorf("%s: exit %d and %+v", name, got, r.Results()[0])
		}
	}
}

func TestMarkdown(t *testing.T) {
	r := core.Report{Kit: "v1", Simulated: true, Machine: []core.Fact{{Name: "GPU", Value: "a | b"}},
		Steps: []core.Outcome{
			core.Complete(core.Step{ID: "abi", Title: "Names", Claims: []string{"abi-known"}},
				core.Outcome{Ended: "the step\ncrashed",
					Facts: []core.Fact{{Name: "n", Value: strings.Repeat("x", 400)}}}),
		}}
	r.Settle(core.Settings{"a": "1"}, core.Settings{"a": "2"})
	text := r.Markdown()
	for _, want := range []string{
		"**Simulated:**", "| GPU | a \\| b |", "| `settings-unchanged` | With `--gpu-settings read-only`, Kerf " +
			"changes no setting of a GPU. | disproven | 1 differences |",
		"| not reached | the step crashed |", "- a was 1 before and is 2 now",
		"It did not run to its end: the step crashed.", "xxx ... |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
	r.Other = &core.Report{Steps: []core.Outcome{{ID: "abi", Facts: []core.Fact{{Name: "n", Value: "seven"}}}}}
	if text := r.Markdown(); !strings.Contains(text, "| what | value | simulator |") ||
		!strings.Contains(text, "xxx ... | seven |") {
		t.Errorf("the simulator's facts are missing in:\n%s", text)
	}
	if r.Other, r.Simulated = nil, false; strings.Contains(r.Markdown(), "imulated") {
		t.Error("a report of a real GPU is marked as simulated")
	}
}

func TestAdds(t *testing.T) {
	without := []float64{10, 11, 12, 10, 11, 12, 10, 11, 12}
	plus := func(d ...float64) (out []float64) {
		for i, v := range without {
			out = append(out, v+d[i%len(d)])
		}
		return out
	}
	for name, tt := range map[string]struct {
		with []float64
		want core.Verdict
	}{
		"nothing":                {plus(0), core.Proven},
		"less than the bound":    {plus(0.5, 0.9), core.Proven},
		"more than the bound":    {plus(1.5, 2), core.Disproven},
		"one value is far off":   {plus(0, 0, 0, 0, 0, 0, 0, 0, 500), core.Proven},
		"the noise hides it":     {plus(-20, 20, 3, -3), core.NotPossible},
		"too few measurements":   {plus(0)[:5], core.NotPossible},
		"no measurements":        {nil, core.NotPossible},
		"six alike measurements": {plus(2)[:6], core.Disproven},
	} {
		if got := core.Adds("x", "it", without, tt.with, 1, "µs"); got.Verdict != tt.want || got.Detail == "" {
			t.Errorf("%s: %+v, want %s", name, got, tt.want)
		}
	}
}
