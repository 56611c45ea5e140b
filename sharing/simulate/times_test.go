// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package simulate_test

import (
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/simulate"
)

func TestTimes(t *testing.T) {
	s := simulate.Scenario{
		Machines: []simulate.Machine{{Count: 10, GPUs: 4}},
		Pods: []simulate.PodType{
			{GPUs: 1, Life: 0.5},
			{GPUs: 2, Lifetime: simulate.Times{Distribution: "lognormal", Mean: "90m", Sigma: 1.5}},
			{Cores: 1, Lifetime: simulate.Times{Distribution: "constant"}},
		},
		Lifetimes: simulate.Times{Distribution: "uniform", Min: "1h", Max: "3h"},
		Arrivals:  simulate.Times{Mean: "6m"},
	}
	pods, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	type times struct {
		Hours  float64
		Varies simulate.Variation
	}
	var got []times
	for _, p := range pods {
		got = append(got, times{p.Life, p.Varies})
	}
	want := []times{
		{1, simulate.Variation{Distribution: "uniform", Width: 0.5}},
		{1.5, simulate.Variation{Distribution: "lognormal", Width: 1.5}},
		{2, simulate.Variation{Distribution: "constant"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	nodes, err := s.Nodes()
	if err != nil {
		t.Fatal(err)
	}
	// Ten pods an hour; the three kinds hold 1, 2 and 0 GPUs for 1, 1.5 and 2 hours: 40 GPU hours in three hours.
	varies, load, err := s.Arriving(nodes, pods)
	if err != nil || varies.Distribution != "exponential" || math.Abs(load-40.0/3/40) > 1e-9 {
		t.Errorf("arriving %+v %g %v", varies, load, err)
	}
	s.Arrivals.Mean = ""
	if _, load, err := s.Arriving(nodes, pods); load != 0 || err != nil {
		t.Errorf("without a mean: load %g, %v", load, err)
	}

	for name, wrong := range map[string]simulate.Scenario{
		"no distribution":   {Lifetimes: simulate.Times{Distribution: "normal"}},
		"mean of uniform":   {Lifetimes: simulate.Times{Distribution: "uniform", Min: "1h", Max: "2h", Mean: "1h"}},
		"min above max":     {Lifetimes: simulate.Times{Distribution: "uniform", Min: "3h", Max: "2h"}},
		"no max":            {Lifetimes: simulate.Times{Distribution: "uniform"}},
		"max of constant":   {Lifetimes: simulate.Times{Distribution: "constant", Max: "2h"}},
		"sigma of constant": {Lifetimes: simulate.Times{Distribution: "constant", Sigma: 1}},
		"wide":              {Lifetimes: simulate.Times{Distribution: "lognormal", Sigma: 4}},
		"no duration":       {Lifetimes: simulate.Times{Mean: "6"}},
		"negative":          {Lifetimes: simulate.Times{Mean: "-6h"}},
		"no life time":      {Arrivals: simulate.Times{Mean: "6h"}},
		"arrivals":          {Arrivals: simulate.Times{Mean: "0s"}},
		"vary":              {Pods: []simulate.PodType{{Vary: 1.5}}},
		"life and life time": {Lifetimes: simulate.Times{Mean: "1h"},
			Pods: []simulate.PodType{{Life: 2, Lifetime: simulate.Times{Mean: "1h"}}}},
		"one life time alone": {Pods: []simulate.PodType{{Lifetime: simulate.Times{Mean: "1h"}}}},
		"draw":                {Draw: simulate.Draw{Pods: -1}},
	} {
		_, err := wrong.List()
		if err == nil {
			_, _, err = wrong.Arriving(nil, nil)
		}
		if _, ok := errors.AsType[*sharing.FieldError](err); !ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// However times vary, the load is what was asked for.
func TestChurnHoldsItsLoad(t *testing.T) {
	nodes, pods := synthetic()
	for _, v := range []simulate.Variation{
		{}, {Distribution: "constant"}, {Distribution: "uniform", Width: 1}, {Distribution: "lognormal", Width: 0.5},
	} {
		varied := append([]simulate.Pod{}, pods...)
		for i := range varied {
			varied[i].Varies = v
		}
		mean := 0.0
		for seed := range int64(40) {
			e := simulate.Experiment{Nodes: nodes, Typical: pods, Policy: policy(t, "bestfit"), Arrivals: v,
				Now: ticking()}
			r, err := e.Churn(varied, 0.4, seed)
			if err != nil {
				t.Fatal(err)
			}
			mean += r.MeanAllocatedPercent / 40
		}
		if mean < 38 || mean > 42 {
			t.Errorf("%+v: %.1f %% allocated of a load of 40 %%", v, mean)
		}
	}
}
