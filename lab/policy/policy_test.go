// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/lab/policy"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
)

func ask(cpu cluster.Milli, memory sharing.Bytes, gpus int, share cluster.Milli, models string) cluster.Request {
	return cluster.Request{Memory: memory, Shape: cluster.Shape{CPU: cpu, GPUs: gpus, Share: share, Models: models}}
}
func TestTodaysPoliciesTakeWhatTheyAreKnownFor(t *testing.T) {
	nodes := []cluster.Node{
		{Name: "shared", CPU: 8000, Memory: 64 * sharing.GiB, GPUs: []cluster.Milli{400, 1000}},
		{Name: "roomy", CPU: 90000, Memory: 64 * sharing.GiB, GPUs: []cluster.Milli{1000, 1000}},
		{Name: "none", CPU: 90000, Memory: 64 * sharing.GiB},
	}
	share, cpu := ask(1000, 0, 1, 300, ""), ask(1000, 0, 0, 0, "")
	for _, tt := range []struct {
		of       cluster.Policy
		r        cluster.Request
		node     int
		reserves cluster.Milli
	}{
		{policy.Packing{}, share, 0, 300},
		{policy.HAMiBinpack{}, share, 0, 300},
		{policy.KAIGPUPack{}, share, 0, 300},
		{policy.KAIGPUPack{}, cpu, 2, 0},
		{policy.WholeOnly{}, share, 1, 1000},
		{policy.WholeOnly{}, cpu, 1, 0},
		{policy.TimeSlice{}, share, 1, 1000},
		{policy.TimeSlice{}, ask(1000, 0, 1, 250, ""), 1, 250},
		{policy.TimeSlice{}, ask(1000, 0, 1, 10, ""), 1, 250},
		{policy.TimeSlice{}, cpu, 1, 0},
	} {
		r := tt.r
		if b, ok := tt.of.(cluster.Charger); ok {
			r = b.Charge(r)
		}
		c := cluster.New(nodes, tt.of)
		// Half of the first node's CPU is in use, so that the others have more left.
		if err := c.Take(ask(4000, 0, 0, 0, ""), cluster.Placement{}); err != nil {
			t.Fatal(err)
		}
		if p, ok := c.Choose(r); !ok || p.Node != tt.node || r.Share != tt.reserves {
			t.Errorf("%T %+v: node %d, share %d, want node %d, share %d", tt.of, tt.r, p.Node, r.Share, tt.node,
				tt.reserves)
		}
	}
}

func TestClusteringKeepsKindsTogether(t *testing.T) {
	c := cluster.New([]cluster.Node{
		{CPU: 9000, GPUs: []cluster.Milli{1000, 1000}}, {CPU: 9000, GPUs: []cluster.Milli{1000, 1000, 1000, 1000}},
	}, policy.Clustering{})
	whole, share := ask(1, 0, 1, 1000, ""), ask(1, 0, 1, 100, "")
	if err := c.Take(whole, cluster.Placement{GPUs: []int{0}}); err != nil {
		t.Fatal(err)
	}
	if err := c.Take(share, cluster.Placement{Node: 1, GPUs: []int{0}}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		r    cluster.Request
		node int
	}{{whole, 0}, {share, 1}} {
		if p, ok := c.Choose(tt.r); !ok || p.Node != tt.node {
			t.Errorf("%+v: %v %v, want node %d", tt.r, p, ok, tt.node)
		}
	}
	c.Release(share, cluster.Placement{Node: 1, GPUs: []int{0}})
	if p, ok := c.Choose(share); !ok || p.Node != 0 {
		t.Errorf("no shares left: %v %v, want the fuller node", p, ok)
	}
}

func TestRandomDrawsAnewAndRepeats(t *testing.T) {
	var nodes []cluster.Node
	for i := range 20 {
		nodes = append(nodes, cluster.Node{Name: fmt.Sprint("n", i), CPU: 96000,
			GPUs: slices.Repeat([]cluster.Milli{1000}, 1+i%8)})
	}
	draw := func(seed int64) map[string]bool {
		c, seen := cluster.New(nodes, policy.NewRandom(seed)), map[string]bool{}
		for i := range 40 {
			p, ok := c.Choose(ask(1, 0, 1, 100, ""))
			if !ok {
				t.Fatal("nothing fits an empty cluster")
			}
			seen[fmt.Sprint(i, p)] = true
		}
		return seen
	}
	if diff := cmp.Diff(draw(1), draw(1)); diff != "" {
		t.Errorf("one seed, two answers:\n%s", diff)
	}
	if cmp.Equal(draw(1), draw(2)) {
		t.Error("two seeds, one answer")
	}
	places := map[int]bool{}
	c := cluster.New(nodes, policy.NewRandom(1))
	for range 200 {
		p, _ := c.Choose(ask(1, 0, 1, 100, ""))
		places[p.Node] = true
	}
	if len(places) < len(nodes)-2 {
		t.Errorf("only %d of %d nodes drawn in 200 times", len(places), len(nodes))
	}
}
