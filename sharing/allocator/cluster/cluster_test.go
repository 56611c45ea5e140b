// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	others "github.com/kerf-gpu/kerf/lab/policy"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
)

// mix is a small synthetic cluster and what arrives there.
func mix(r *rand.Rand, count int) ([]cluster.Node, []cluster.Request) {
	var nodes []cluster.Node
	for i := range 24 {
		n := cluster.Node{Name: fmt.Sprintf("n%02d", i), CPU: 32000, Memory: 256 * sharing.GiB,
			Model: []string{"A", "B"}[i%2]}
		for range []int{1, 2, 4, 8}[i%4] {
			n.GPUs = append(n.GPUs, cluster.WholeGPU)
		}
		nodes = append(nodes, n)
	}
	shares := []cluster.Milli{110, 230, 470, 470, 810, 810, 1000, 1000}
	var requests []cluster.Request
	for range count {
		q := cluster.Request{Memory: sharing.Bytes(r.IntN(16)) * sharing.GiB}
		q.CPU = cluster.Milli(1000 * (1 + r.IntN(8)))
		switch r.IntN(20) {
		case 0:
		case 1:
			q.GPUs, q.Share = []int{2, 4, 8}[r.IntN(3)], cluster.WholeGPU
		default:
			q.GPUs, q.Share = 1, shares[r.IntN(len(shares))]
		}
		if q.GPUs > 0 && r.IntN(5) == 0 {
			q.Models = []string{"A", "B|C"}[r.IntN(2)]
		}
		requests = append(requests, q)
	}
	return nodes, requests
}

func TestJudgeSaysWhatIsMissing(t *testing.T) {
	n := cluster.Node{CPU: 4000, Memory: 8 * sharing.GiB, Model: "A", GPUs: []cluster.Milli{300, 1000},
		Level: sharing.LevelReactive}
	tests := []struct {
		name string
		r    cluster.Request
		want cluster.Reason
	}{
		{"fits", ask(4000, 8*sharing.GiB, 2, 300, "B|A"), cluster.Fits},
		{"no GPU requested", ask(1, 1, 0, 0, ""), cluster.Fits},
		{"cpu", ask(4001, 1, 1, 100, ""), cluster.LacksCPU},
		{"memory", ask(1, 8*sharing.GiB+1, 1, 100, ""), cluster.LacksMemory},
		{"model", ask(1, 1, 1, 100, "AA|B"), cluster.WrongModel},
		{"glob", ask(1, 1, 1, 100, "B*|?"), cluster.Fits},
		{"glob against", ask(1, 1, 1, 100, "!A"), cluster.WrongModel},
		{"level", cluster.Request{Shape: cluster.Shape{GPUs: 1, Share: 100, Level: sharing.LevelDriver}},
			cluster.LacksLevel},
		{"weaker level", cluster.Request{Shape: cluster.Shape{GPUs: 1, Share: 100, Level: sharing.LevelReactive}},
			cluster.Fits},
		{"whole GPUs have every level", cluster.Request{Shape: cluster.Shape{GPUs: 1, Share: 1000,
			Level: sharing.LevelDriver}}, cluster.Fits},
		{"gpus", ask(1, 1, 3, 100, ""), cluster.LacksGPUs},
		{"free but not on one GPU", ask(1, 1, 2, 301, ""), cluster.LacksCapacity},
	}
	part, byMemory, all := ask(1, 1, 1, 100, ""), ask(1, 1, 1, 0, ""), ask(1, 1, 1, 1000, "")
	byMemory.GPUMemory = 80 * sharing.GiB
	for gives, want := range map[cluster.Modes][3]cluster.Reason{
		cluster.AllModes:   {},
		cluster.PartsAlone: {cluster.Fits, cluster.Fits, cluster.OtherMode},
		cluster.WholeAlone: {cluster.OtherMode, cluster.OtherMode, cluster.Fits},
	} {
		given := n
		given.AllowedModes, given.GPUMemory = gives, 80*sharing.GiB
		for i, r := range []cluster.Request{part, byMemory, all} {
			if got := cluster.Evaluate(&given, r); got != want[i] {
				t.Errorf("GPUs that are given %s, request %d: %q, want %q", gives, i, got, want[i])
			}
		}
		if got := cluster.Evaluate(&given, ask(1, 1, 0, 0, "")); got != cluster.Fits {
			t.Errorf("no GPU of those that are given %s: %q", gives, got)
		}
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := cluster.Evaluate(&n, tt.r); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	c := cluster.New([]cluster.Node{n, n}, others.BestFit{})
	for _, no := range c.Refusals(ask(1, 1, 2, 301, "")) {
		if no.Reason != cluster.LacksCapacity {
			t.Errorf("%+v, want %q", no, cluster.LacksCapacity)
		}
	}
}

func ask(cpu cluster.Milli, memory sharing.Bytes, gpus int, share cluster.Milli, models string) cluster.Request {
	return cluster.Request{Memory: memory, Shape: cluster.Shape{CPU: cpu, GPUs: gpus, Share: share, Models: models}}
}

func TestTakeRefusesWhatDoesNotFit(t *testing.T) {
	c := cluster.New([]cluster.Node{{CPU: 4000, GPUs: []cluster.Milli{300, 1000}}}, others.BestFit{})
	for name, p := range map[string]cluster.Placement{
		"full": {GPUs: []int{0}}, "absent": {GPUs: []int{2}}, "negative": {GPUs: []int{-1}},
		"too many": {GPUs: []int{0, 1}}, "none": {},
	} {
		if err := c.Take(ask(1000, 0, 1, 500, ""), p); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if err := c.Take(ask(1000, 0, 2, 100, ""), cluster.Placement{GPUs: []int{1, 1}}); err == nil {
		t.Error("one GPU twice: taken")
	}
	if got := c.Node(0); got.CPU != 4000 || got.Free() != 1300 {
		t.Errorf("a refused placement changed the node: %+v", got)
	}
}

// Shares of 600 and 400 make a full GPU, so a hole of 400 is kept for 400 and 200 goes elsewhere.
func TestKerfKeepsHolesThatMakeAFullGPU(t *testing.T) {
	var sample []cluster.Request
	for i := range 100 {
		sample = append(sample, ask(1000, 0, 1, []cluster.Milli{600, 400}[i%2], ""))
	}
	nodes := []cluster.Node{{CPU: 90000, GPUs: []cluster.Milli{400, 300}}}
	c := cluster.New(nodes, cluster.NewKerf(cluster.NewWorkload(sample), nodes))
	if p, ok := c.Choose(ask(1000, 0, 1, 400, "")); !ok || p.GPUs[0] != 0 {
		t.Errorf("share 400: %v %v, want GPU 0", p, ok)
	}
	if p, ok := c.Choose(ask(1000, 0, 1, 200, "")); !ok || p.GPUs[0] != 1 {
		t.Errorf("share 200: %v %v, want GPU 1", p, ok)
	}
}
