// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package bound_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/kerf-gpu/kerf/lab/bound"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
)

func node(model string, gpus int, cpu cluster.Milli, memory sharing.Bytes) cluster.Node {
	n := cluster.Node{Model: model, CPU: cpu, Memory: memory}
	for range gpus {
		n.GPUs = append(n.GPUs, cluster.WholeGPU)
	}
	return n
}

func ask(gpus int, share, cpu cluster.Milli, memory sharing.Bytes, models string) cluster.Request {
	return cluster.Request{Shape: cluster.Shape{GPUs: gpus, Share: share, CPU: cpu, Models: models}, Memory: memory}
}

func TestImpossible(t *testing.T) {
	a, b := node("A", 2, 8000, 8*sharing.GiB), node("B", 4, 4000, 8*sharing.GiB)
	for name, tt := range map[string]struct {
		nodes []cluster.Node
		asked map[cluster.Request]int
		want  bool
	}{
		"nothing is asked": {[]cluster.Node{a}, nil, false},
		"no node":          {nil, map[cluster.Request]int{ask(1, 1, 0, 0, ""): 1}, true},
		"all GPUs": {[]cluster.Node{a, b}, map[cluster.Request]int{ask(1, 1000, 0, 0, ""): 6},
			false},
		"one GPU too many": {[]cluster.Node{a, b}, map[cluster.Request]int{ask(1, 1000, 0, 0, ""): 7},
			true},
		"shares that fill": {[]cluster.Node{a}, map[cluster.Request]int{ask(1, 700, 0, 0, ""): 2,
			ask(1, 300, 0, 0, ""): 2}, false},
		"holes that nothing fills": {[]cluster.Node{a}, map[cluster.Request]int{ask(1, 700, 0, 0, ""): 2,
			ask(1, 301, 0, 0, ""): 1}, true},
		"three of 400 are not on one": {[]cluster.Node{a}, map[cluster.Request]int{ask(1, 400, 0, 0, ""): 5}, true},
		"the model has no more": {[]cluster.Node{a, b}, map[cluster.Request]int{ask(1, 1000, 0, 0, "A"): 3},
			true},
		"CPU for all": {[]cluster.Node{a, b}, map[cluster.Request]int{ask(1, 500, 2000, 0, ""): 6},
			false},
		"the CPU is short": {[]cluster.Node{a, b}, map[cluster.Request]int{ask(1, 500, 2000, 0, ""): 7},
			true},
		"the memory is short": {[]cluster.Node{a, b},
			map[cluster.Request]int{ask(1, 100, 0, 5*sharing.GiB, ""): 4}, true},
		"CPU where the GPUs are not": {[]cluster.Node{a, b},
			map[cluster.Request]int{ask(1, 1000, 3000, 0, "B"): 2}, true},
		"no node is large enough": {[]cluster.Node{a, b}, map[cluster.Request]int{ask(5, 1000, 0, 0, ""): 1},
			true},
		"one node has enough GPUs": {[]cluster.Node{a, b}, map[cluster.Request]int{ask(4, 1000, 0, 0, ""): 1,
			ask(1, 1000, 0, 0, ""): 2}, false},
		"large ones take what is left": {[]cluster.Node{a, b}, map[cluster.Request]int{ask(4, 1000, 0, 0, ""): 1,
			ask(1, 1000, 0, 0, "B"): 1}, true},
		"CPU that no GPU goes with": {[]cluster.Node{a, b}, map[cluster.Request]int{ask(0, 0, 4000, 0, ""): 3},
			false},
		"CPU that is gone": {[]cluster.Node{a, b}, map[cluster.Request]int{ask(0, 0, 4000, 0, ""): 3,
			ask(1, 100, 1000, 0, ""): 1}, true},
		"a number of 0 is not requested": {[]cluster.Node{a}, map[cluster.Request]int{ask(9, 1000, 0, 0, ""): 0},
			false},
		"a request of nothing": {[]cluster.Node{a}, map[cluster.Request]int{ask(0, 0, 0, 0, ""): 9}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := bound.New(tt.nodes).Impossible(tt.asked); got != tt.want {
				t.Errorf("impossible: %t", got)
			}
		})
	}
}

func TestNodesThatTakeNothingHaveNoRoom(t *testing.T) {
	n := node("A", 2, 0, 0)
	n.GPUs[1] = 0
	c := node("A", 2, 0, 0)
	c.Cordoned = true
	r := bound.New([]cluster.Node{n, c})
	if r.Impossible(map[cluster.Request]int{ask(1, 1000, 0, 0, ""): 1}) ||
		!r.Impossible(map[cluster.Request]int{ask(1, 1000, 0, 0, ""): 2}) {
		t.Error("there is room for one GPU")
	}
}

// packs tries all ways to place the requests, one after the other.
func packs(c *cluster.Cluster, list []cluster.Request) bool {
	if len(list) == 0 {
		return true
	}
	r := list[0]
	for n := range c.Len() {
		for gpus := range 1 << len(c.Node(n).GPUs) {
			p := cluster.Placement{Node: n}
			for g := range c.Node(n).GPUs {
				if gpus&(1<<g) != 0 {
					p.GPUs = append(p.GPUs, g)
				}
			}
			if len(p.GPUs) != r.GPUs || c.Take(r, p) != nil {
				continue
			}
			if packs(c, list[1:]) {
				return true
			}
			c.Release(r, p)
		}
	}
	return false
}

// Whatever is called impossible, no way to place it is found by trying all; and of what all ways fail at, most is seen.
func TestNothingThatIsPossibleIsCalledImpossible(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 3))
	pick := func(list ...cluster.Milli) cluster.Milli { return list[r.IntN(len(list))] }
	both, proven := 0, 0
	for range 1500 {
		var nodes []cluster.Node
		for i := range 1 + r.IntN(3) {
			nodes = append(nodes, node([]string{"A", "B"}[r.IntN(2)], 1+r.IntN(3), pick(2000, 4000, 8000),
				sharing.Bytes(1+r.IntN(4))*sharing.GiB))
			nodes[i].Name = fmt.Sprint(i)
		}
		var list []cluster.Request
		counts := map[cluster.Request]int{}
		for range 2 + r.IntN(5) {
			q := ask(1, pick(190, 250, 333, 460, 500, 650, 810, 1000), pick(0, 500, 1500, 3000),
				sharing.Bytes(r.IntN(3))*sharing.GiB/2, []string{"", "", "A", "B"}[r.IntN(4)])
			switch r.IntN(6) {
			case 0:
				q.GPUs = 2
			case 1:
				q.GPUs, q.Share, q.Models = 0, 0, ""
			}
			list = append(list, q)
			counts[q]++
		}
		possible := packs(cluster.New(nodes, nil), list)
		impossible := bound.New(nodes).Impossible(counts)
		if possible && impossible {
			t.Fatalf("%+v\nhave room for %+v", nodes, list)
		}
		if !possible {
			both++
		}
		if impossible {
			proven++
		}
	}
	if proven < 100 || proven*2 < both {
		t.Errorf("%d of %d impossible ones are seen: too few to be of use", proven, both)
	}
	t.Logf("%d of %d", proven, both)
}
