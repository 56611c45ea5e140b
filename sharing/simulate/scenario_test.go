// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package simulate_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	others "github.com/kerf-gpu/kerf/lab/policy"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/simulate"
)

func TestScenario(t *testing.T) {
	s := simulate.Scenario{
		Machines: []simulate.Machine{{Name: "a", Count: 2, Cores: 0.5, Memory: "1Gi", GPUs: 2, Model: "T4",
			GPUMemory: "15Gi"}},
		Pods: []simulate.PodType{
			{Name: "cpu", Cores: 4},
			{Name: "share", Count: 2, Percent: 12.5, Models: []string{"T4", "A*"}},
			{Name: "memory", GPUMemory: "5Gi"},
			{Name: "whole", GPUs: 2},
		},
	}
	nodes, err := s.Nodes()
	if err != nil {
		t.Fatal(err)
	}
	if n := nodes[1]; len(nodes) != 2 || n.Name != "a-1" || n.CPU != 500 || n.Memory != sharing.GiB ||
		n.Free() != 2000 || n.GPUMemory != 15*sharing.GiB {
		t.Errorf("nodes %+v", nodes)
	}
	pods, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	simulate.Size(pods, nodes)
	var demand []cluster.Milli
	for i := range pods {
		demand = append(demand, pods[i].Demand())
	}
	if diff := cmp.Diff([]cluster.Milli{0, 125, 125, 333, 2000}, demand); diff != "" {
		t.Errorf("demand (-want +got):\n%s", diff)
	}
	if p := pods[2]; p.Name != "share-000001" || p.Type != "share" || p.GPUs != 1 || p.Models != "T4|A*" {
		t.Errorf("share %+v", p)
	}
	for name, wrong := range map[string]simulate.Scenario{
		"no count":      {Machines: []simulate.Machine{{}}},
		"too many":      {Machines: []simulate.Machine{{Count: 1 << 30}}},
		"gpus":          {Machines: []simulate.Machine{{Count: 1, GPUs: 65}}},
		"cores":         {Machines: []simulate.Machine{{Count: 1, Cores: math.NaN()}}},
		"memory":        {Machines: []simulate.Machine{{Count: 1, Memory: "much"}}},
		"percent":       {Pods: []simulate.PodType{{Percent: 101}}},
		"life":          {Pods: []simulate.PodType{{Life: -1}}},
		"glob":          {Pods: []simulate.PodType{{Models: []string{"["}}}},
		"pods":          {Pods: []simulate.PodType{{Count: -1}}},
		"too much":      {Pods: []simulate.PodType{{GPUMemory: "9000Pi"}}},
		"too many pods": {Pods: []simulate.PodType{{Count: 1 << 10}, {Count: 1 << 17}}},
	} {
		_, err := wrong.Nodes()
		if err == nil {
			_, err = wrong.List()
		}
		if _, ok := errors.AsType[*sharing.FieldError](err); !ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFits(t *testing.T) {
	nodes := []cluster.Node{
		{Name: "a", CPU: 8000, Model: "A", GPUs: []cluster.Milli{1000, 1000}},
		{Name: "b", CPU: 8000, Model: "B", GPUs: []cluster.Milli{1000}},
	}
	pod := func(kind string, gpus int, share cluster.Milli, models string) simulate.Pod {
		return simulate.Pod{Name: kind, Type: kind,
			Request: cluster.Request{Shape: cluster.Shape{CPU: 1000, GPUs: gpus, Share: share, Models: models}}}
	}
	e := simulate.Experiment{Nodes: nodes, Policy: others.BestFit{}, Now: time.Now}
	there := []simulate.Pod{pod("old", 1, 600, "A")}
	f, err := e.Fits(there, []simulate.Pod{pod("half", 1, 500, ""), pod("pair", 2, 1000, "A"), pod("half", 1, 500, ""),
		pod("pair", 2, 1000, "A")})
	if err != nil {
		t.Fatal(err)
	}
	want := simulate.Fit{
		Before: 20, After: 53.33,
		Pods: []simulate.TypeFit{{Type: "half", Requested: 2, Placed: 2}, {Type: "pair", Requested: 2,
			Reasons: []simulate.Cause{
				{Reason: "too little free on any one GPU", Nodes: 1, Example: "a: 1 GPUs have 100 % free, 2 requested"},
				{Reason: "wrong GPU model", Nodes: 1, Example: "b: GPUs are B, A requested"},
			}}},
		More: []simulate.More{{Model: "A", Nodes: 2, GPUs: 4}},
	}
	if diff := cmp.Diff(want, f); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	f, err = e.Fits(there, []simulate.Pod{pod("four", 4, 1000, "")})
	if err != nil || f.More != nil || f.Pods[0].Placed != 0 {
		t.Errorf("what fits no machine: %+v %v", f, err)
	}
	f, err = e.Fits(nil, []simulate.Pod{pod("one", 1, 1000, "")})
	if err != nil || f.More != nil || f.Pods[0].Placed != 1 || f.Before != 0 || f.After != 33.33 {
		t.Errorf("what fits: %+v %v", f, err)
	}
}

// A pod that lives long is there more often: with the same load fewer arrive.
func TestChurnKnowsHowLongPodsLive(t *testing.T) {
	nodes, pods := synthetic()
	equal := simulate.Experiment{Nodes: nodes, Typical: pods, Policy: others.BestFit{}, Now: ticking()}
	a, err := equal.Churn(pods, 0.5, 3)
	if err != nil {
		t.Fatal(err)
	}
	long := append([]simulate.Pod{}, pods...)
	for i := range long {
		if long[i].GPUs == 4 {
			long[i].Life = 100
		}
	}
	b, err := equal.Churn(long, 0.5, 3)
	if err != nil {
		t.Fatal(err)
	}
	if b.Arrived["share"] >= a.Arrived["share"] {
		t.Errorf("%d shares arrived next to long runs, %d without", b.Arrived["share"], a.Arrived["share"])
	}
}
