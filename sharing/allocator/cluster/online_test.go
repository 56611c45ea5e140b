// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"testing"

	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
)

func TestOnlineLearnsWhichHolesToKeep(t *testing.T) {
	nodes := []cluster.Node{{CPU: 900000, GPUs: []cluster.Milli{400, 300}}}
	c := cluster.New(nodes, cluster.NewOnline(nodes))
	learn := func(count int, shares ...cluster.Milli) {
		for i := range count {
			c.Learn(ask(1000, 0, 1, shares[i%len(shares)], ""))
		}
	}
	// A hole of 400 is worth a share of 400, one of 300 nothing.
	learn(64, 600, 400)
	if p, _ := c.Choose(ask(1000, 0, 1, 200, "")); p.GPUs[0] != 1 {
		t.Errorf("after 600 and 400: a share of 200 on GPU %d, want 1", p.GPUs[0])
	}
	// The workload changes: 300 is what fills a GPU now, and 400 fits nothing better.
	learn(40000, 700, 300)
	if p, _ := c.Choose(ask(1000, 0, 1, 100, "")); p.GPUs[0] != 0 {
		t.Errorf("after 700 and 300: a share of 100 on GPU %d, want 0", p.GPUs[0])
	}
}

// Before it has seen any request for a whole node, it keeps one free where it can.
func TestOnlineKeepsAWholeNodeFromTheStart(t *testing.T) {
	nodes := []cluster.Node{{CPU: 9000, GPUs: full(8)}, {CPU: 9000, GPUs: full(4)}, {CPU: 9000, GPUs: full(8)}}
	c := cluster.New(nodes, cluster.NewOnline(nodes))
	for range 4 {
		r := ask(1000, 0, 1, 1000, "")
		p, ok := c.Choose(r)
		if !ok || p.Node != 1 {
			t.Fatalf("placed on node %d, want the one that is no start for 8 GPUs", p.Node)
		}
		if err := c.Take(r, p); err != nil {
			t.Fatal(err)
		}
	}
}

// Requests leave this cluster. So a node that can start a request for two GPUs is worth more than the fragmentation
// that a share causes elsewhere.
func TestKerfKeepsStartsWhereRequestsLeave(t *testing.T) {
	var sample []cluster.Request
	for i := range 100 {
		sample = append(sample, ask(1000, 0, 1, 400, ""))
		if i%2 == 0 {
			sample = append(sample, ask(1000, 0, 2, 1000, ""))
		}
	}
	nodes := []cluster.Node{{CPU: 90000, GPUs: []cluster.Milli{1000, 1000}},
		{CPU: 90000, GPUs: []cluster.Milli{1000, 700, 0}}}
	k := cluster.NewKerf(cluster.NewWorkload(sample), nodes)
	gap := func() int64 {
		start, _ := k.Score(&nodes[0], cluster.Shape{CPU: 1000, GPUs: 1, Share: 400})
		other, _ := k.Score(&nodes[1], cluster.Shape{CPU: 1000, GPUs: 1, Share: 400})
		return other - start
	}
	before := gap()
	changed := 0
	for range 1000 {
		if k.Leave() {
			changed++
		}
	}
	// Scores are in steps of 80 before and of 40 afterwards.
	if after := gap(); changed != 1 || after <= 2*before {
		t.Errorf("reported %d times; the start is worth %d steps of 80, then %d of 40", changed, before, after)
	}
}

func full(n int) []cluster.Milli {
	gpus := make([]cluster.Milli, n)
	for i := range gpus {
		gpus[i] = cluster.WholeGPU
	}
	return gpus
}
