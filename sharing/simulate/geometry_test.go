// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package simulate_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	others "github.com/kerf-gpu/kerf/lab/policy"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/simulate"
	"github.com/kerf-gpu/kerf/sim/machine"
)

// A simulation's instances are what the drivers of those GPUs report, where profiles have no attribute: slices, units,
// starts and how many there can be. Names may differ where a driver rounds.
func TestGeometryIsThatOfTheDrivers(t *testing.T) {
	for _, name := range []string{"a100x8", "a30x2", "h100x8", "h200x8", "b200x8", "rtxpro6000x4"} {
		m, err := machine.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		model := m.GPUs[0].Model
		nodes := []cluster.Node{{Name: "n", Model: model.Name, GPUs: []cluster.Milli{1000}, GPUMemory: model.Memory}}
		if err := simulate.MIG(nodes, func(string) bool { return true }); err != nil {
			t.Fatal(err)
		}
		type shape struct {
			compute, size, most int
			starts              string
		}
		got, want := map[shape]bool{}, map[shape]bool{}
		for _, p := range nodes[0].Table.Profiles() {
			got[shape{p.Compute, p.Size, p.MaxInstances, fmt.Sprint(p.Starts)}] = true
		}
		for _, p := range model.Profiles {
			if !strings.ContainsAny(p.Name, "+-") {
				want[shape{p.Slices, p.Size, p.Max, fmt.Sprint(p.Starts)}] = true
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s: %d profiles, the driver has %d", name, len(got), len(want))
		}
		for s := range want {
			if !got[s] {
				t.Errorf("%s: no %+v", name, s)
			}
		}
	}
}

func TestScenarioWithInstances(t *testing.T) {
	s := simulate.Scenario{
		Machines: []simulate.Machine{{Name: "a", Count: 1, Cores: 32, GPUs: 1, Model: "H100", GPUMemory: "80Gi",
			MIG: true}, {Name: "b", Count: 1, Cores: 32, GPUs: 1}},
		Pods: []simulate.PodType{{Name: "small", Count: 7, MIG: "1g.10gb"},
			{Name: "other", Count: 1, MIG: "1g", Cores: 1}},
	}
	nodes, err := s.Nodes()
	if err != nil {
		t.Fatal(err)
	}
	pods, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	simulate.Size(pods, nodes)
	if pods[0].Demand() != 125 || pods[7].Demand() != 125 {
		t.Errorf("an instance counts for %d and %d", pods[0].Demand(), pods[7].Demand())
	}
	policy, err := others.New("kerf", nodes, pods, 1)
	if err != nil {
		t.Fatal(err)
	}
	f, err := simulate.Experiment{Nodes: nodes, Typical: pods, Policy: policy, Now: ticking()}.Fits(nil, pods)
	if err != nil {
		t.Fatal(err)
	}
	want := []simulate.TypeFit{
		{Type: "small", Requested: 7, Placed: 7},
		{Type: "other", Requested: 1, Reasons: []simulate.Cause{
			{Reason: "too little free on any one GPU", Nodes: 1,
				Example: "a-0: full: 7 of at most 7 1g.10gb are there"},
			{Reason: "no such MIG profile", Nodes: 1, Example: "b-0: GPUs are not in MIG mode, 1g requested"},
		}},
	}
	if diff := cmp.Diff(want, f.Pods); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(f.More) != 1 || f.More[0].Model != "H100" {
		t.Errorf("more: %+v", f.More)
	}
	for _, wrong := range []simulate.PodType{{MIG: "big"}, {MIG: "1g", Percent: 5}, {MIG: "1g", GPUs: 2},
		{MIG: "1g", Vary: 0.5}} {
		s.Pods = []simulate.PodType{wrong}
		if _, err := s.List(); !errors.Is(err, sharing.ErrInvalid) {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
}
