// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package simulate_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	others "github.com/kerf-gpu/kerf/lab/policy"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/simulate"
)

// drawn is a cluster of three kinds of machines and pods of many sizes, made by lot.
func drawn(t *testing.T, seed int64) ([]cluster.Node, []simulate.Pod) {
	t.Helper()
	s := simulate.Scenario{
		Machines: []simulate.Machine{
			{Name: "large", Count: 20, Cores: 96, Memory: "768Gi", GPUs: 8, Model: "H", GPUMemory: "80Gi"},
			{Name: "middle", Count: 20, Cores: 48, Memory: "384Gi", GPUs: 4, Model: "L", GPUMemory: "45Gi"},
			{Name: "small", Count: 20, Cores: 64, Memory: "256Gi", GPUs: 2, Model: "T", GPUMemory: "15Gi"},
		},
		Pods: []simulate.PodType{
			{Name: "chat", Count: 30, Cores: 6, Memory: "24Gi", Percent: 60, Vary: 0.4},
			{Name: "notebook", Count: 30, Cores: 3, Memory: "12Gi", Percent: 22, Vary: 0.5, Life: 0.3},
			{Name: "infer", Count: 15, Cores: 5, Memory: "16Gi", Percent: 81},
			{Name: "batch", Count: 20, Cores: 8, Memory: "48Gi", GPUs: 1, Vary: 0.5},
			{Name: "web", Count: 10, Cores: 8, Memory: "8Gi", Vary: 0.5},
			{Name: "pair", Count: 4, Cores: 16, Memory: "96Gi", GPUs: 2},
			{Name: "train", Count: 2, Cores: 64, Memory: "512Gi", GPUs: 8, Models: []string{"H"}, Life: 3},
		},
		Draw: simulate.Draw{Pods: 1000, Seed: seed},
	}
	nodes, err := s.Nodes()
	if err != nil {
		t.Fatal(err)
	}
	pods, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	return nodes, pods
}

func TestDrawRepeatsAndKeepsTheMix(t *testing.T) {
	_, a := drawn(t, 1)
	_, again := drawn(t, 1)
	if diff := cmp.Diff(a, again); diff != "" {
		t.Errorf("one seed, two lists:\n%s", diff)
	}
	if _, b := drawn(t, 2); cmp.Equal(a, b) {
		t.Error("two seeds gave one list")
	}
	counts, sizes, names := map[string]int{}, map[cluster.Milli]int{}, map[string]bool{}
	for _, p := range a {
		counts[p.Type]++
		names[p.Name] = true
		if p.Type == "chat" {
			sizes[p.Share]++
		}
		if p.Type == "train" && (p.CPU != 64000 || p.Share != cluster.WholeGPU) {
			t.Errorf("what does not vary: %+v", p)
		}
		if p.Type == "web" && (p.GPUs != 0 || p.Demand() != 0 || p.Memory < 4*sharing.GiB ||
			p.Memory > 12*sharing.GiB) {
			t.Errorf("a pod without GPUs: %+v", p)
		}
	}
	if len(a) != 1000 || len(names) != 1000 || counts["chat"] < 230 || counts["chat"] > 310 || counts["train"] < 8 ||
		counts["train"] > 32 {
		t.Errorf("%d pods, %d names, of each type %v", len(a), len(names), counts)
	}
	for _, share := range []cluster.Milli{360, 480, 600, 720, 840} {
		if sizes[share] < 30 {
			t.Errorf("shares of chat: %v", sizes)
			break
		}
	}
}

// The policies' promises are true on clusters and pods that they were not developed with.
func TestPoliciesOnDrawnLists(t *testing.T) {
	for seed := range int64(3) {
		nodes, pods := drawn(t, seed)
		allocated := map[string]float64{}
		for _, name := range []string{"kerf", "fgd", "bestfit", "spread", "nvidia-whole"} {
			p, err := others.New(name, nodes, pods, seed)
			if err != nil {
				t.Fatal(err)
			}
			e := simulate.Experiment{Nodes: simulate.Order(nodes, seed), Typical: pods, Policy: p, Now: ticking()}
			r, err := e.Fill(simulate.Inflate(pods, 280000, 1.3, seed))
			if err != nil {
				t.Fatal(err)
			}
			// Not every load is met by the seed, but the same by all policies.
			for _, percent := range r.AllocatedPercent {
				allocated[name] += percent / float64(len(r.AllocatedPercent))
			}
		}
		if a := allocated; a["kerf"] < a["fgd"] || a["kerf"] < a["bestfit"]+0.2 || a["bestfit"] < a["spread"] ||
			a["spread"] < a["nvidia-whole"] {
			t.Errorf("seed %d: allocated %v", seed, a)
		}
	}
}
