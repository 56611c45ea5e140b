// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	others "github.com/kerf-gpu/kerf/lab/policy"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
)

// occupied is a cluster that holds what the holders hold.
func occupied(t *testing.T, nodes []cluster.Node, holders []cluster.VictimCandidate) *cluster.Cluster {
	t.Helper()
	c := cluster.New(nodes, others.BestFit{})
	for _, h := range holders {
		for _, claim := range h.Grants {
			if err := c.Take(claim.Request, cluster.Placement{Node: h.Node, GPUs: claim.GPUs}); err != nil {
				t.Fatalf("%s: %v", h.Pod, err)
			}
		}
	}
	return c
}

func pod(name string, priority int32, share cluster.Milli, gpus ...int) cluster.VictimCandidate {
	return cluster.VictimCandidate{Pod: name, Priority: priority,
		Grants: []cluster.Grant{{Request: ask(1000, sharing.GiB, len(gpus), share, ""), GPUs: gpus}}}
}

func TestPreemptTakesTheFewestThenTheCheapest(t *testing.T) {
	cost := func(h cluster.VictimCandidate, cost int64) cluster.VictimCandidate { h.Cost = cost; return h }
	protected := func(h cluster.VictimCandidate) cluster.VictimCandidate { h.Protected = true; return h }
	at := func(h cluster.VictimCandidate, node int) cluster.VictimCandidate { h.Node = node; return h }
	tests := map[string]struct {
		holders []cluster.VictimCandidate
		r       cluster.Request
		victims []string
		gpus    []int
		none    bool
	}{
		"one large before two small": {
			holders: []cluster.VictimCandidate{pod("a", 1, 500, 0), pod("b", 1, 500, 0), pod("c", 5, 900, 1)},
			r:       ask(1000, 0, 1, 900, ""), victims: []string{"c"}, gpus: []int{1},
		},
		"room on one GPU, not the sum of two": {
			holders: []cluster.VictimCandidate{pod("a", 1, 700, 0), pod("b", 1, 700, 1)},
			r:       ask(1000, 0, 1, 600, ""), victims: []string{"a"}, gpus: []int{0},
		},
		"low priority before low cost": {
			holders: []cluster.VictimCandidate{cost(pod("a", 2, 900, 0), 1), cost(pod("b", 1, 900, 1), 50)},
			r:       ask(1000, 0, 1, 600, ""), victims: []string{"b"}, gpus: []int{1},
		},
		"the younger of equals": {
			holders: []cluster.VictimCandidate{cost(pod("a", 1, 900, 0), 60), cost(pod("b", 1, 900, 1), 50)},
			r:       ask(1000, 0, 1, 600, ""), victims: []string{"b"}, gpus: []int{1},
		},
		"two before one that is protected": {
			holders: []cluster.VictimCandidate{pod("a", 1, 500, 0), pod("b", 1, 500, 0), protected(pod("c", 1, 900,
				1))},
			r: ask(1000, 0, 1, 900, ""), victims: []string{"a", "b"}, gpus: []int{0},
		},
		"a protected one where there is no other way": {
			holders: []cluster.VictimCandidate{pod("a", 10, 900, 0), protected(pod("c", 1, 900, 1))},
			r:       ask(1000, 0, 1, 900, ""), victims: []string{"c"}, gpus: []int{1},
		},
		"none of the same priority": {
			holders: []cluster.VictimCandidate{pod("a", 10, 900, 0), pod("b", 11, 900, 1)},
			r:       ask(1000, 0, 1, 900, ""), none: true,
		},
		"room already": {
			holders: []cluster.VictimCandidate{pod("a", 1, 100, 0)},
			r:       ask(1000, 0, 1, 900, ""), gpus: []int{0},
		},
		"both GPUs, where the other node would cost more": {
			holders: []cluster.VictimCandidate{pod("a", 1, 300, 0), pod("b", 1, 300, 1), at(pod("c", 1, 300, 0), 1),
				at(pod("d", 1, 300, 0), 1), at(pod("e", 1, 300, 1), 1)},
			r: ask(1000, 0, 2, 800, ""), victims: []string{"a", "b"}, gpus: []int{0, 1},
		},
		"one pod on two GPUs counts once": {
			holders: []cluster.VictimCandidate{pod("a", 1, 300, 0), pod("b", 1, 300, 1), at(pod("c", 1, 300, 0, 1), 1)},
			r:       ask(1000, 0, 2, 800, ""), victims: []string{"c"}, gpus: []int{0, 1},
		},
		"CPU is short": {
			holders: []cluster.VictimCandidate{
				{Pod: "a", Grants: []cluster.Grant{{Request: ask(6000, 0, 0, 0, "")}}},
				{Pod: "b", Grants: []cluster.Grant{{Request: ask(9000, 0, 0, 0, "")}}},
			},
			r: ask(10000, 0, 1, 500, ""), victims: []string{"b"}, gpus: []int{0},
		},
		"another model": {
			holders: []cluster.VictimCandidate{pod("a", 1, 900, 0)},
			r:       ask(1000, 0, 1, 500, "B"), none: true,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			node := cluster.Node{CPU: 16000, Memory: 64 * sharing.GiB, Model: "A", GPUs: full(2)}
			c := occupied(t, []cluster.Node{node, node}, tt.holders)
			p, ok := c.Preempt(tt.r, 10, tt.holders)
			if ok == tt.none {
				t.Fatalf("found %v: %+v", ok, p)
			}
			var victims []string
			for _, i := range p.Victims {
				victims = append(victims, tt.holders[i].Pod)
			}
			if !slices.Equal(victims, tt.victims) || !slices.Equal(p.GPUs, tt.gpus) {
				t.Errorf("got %v on %v, want %v on %v", victims, p.GPUs, tt.victims, tt.gpus)
			}
		})
	}
}

func TestPreemptLeavesWithheldGPUsAlone(t *testing.T) {
	holders := []cluster.VictimCandidate{pod("a", 1, 300, 0), pod("b", 1, 400, 1), pod("c", 1, 400, 1)}
	c := occupied(t, []cluster.Node{{CPU: 16000, Memory: 64 * sharing.GiB, GPUs: full(2)}}, holders)
	if err := c.Withhold(0, 0, true); err != nil {
		t.Fatal(err)
	}
	p, ok := c.Preempt(ask(1, 0, 1, 1000, ""), 10, holders)
	if !ok || !slices.Equal(p.Victims, []int{1, 2}) {
		t.Errorf("%v %+v", ok, p)
	}
}

// price is what brute force compares, in the order of the promise.
type price struct {
	protected, pods int
	highest         int32
	cost            int64
}

func (p price) less(q price) bool {
	switch {
	case p.protected != q.protected:
		return p.protected < q.protected
	case p.pods != q.pods:
		return p.pods < q.pods
	case p.highest != q.highest:
		return p.highest < q.highest
	}
	return p.cost < q.cost
}

func priced(holders []cluster.VictimCandidate, victims []int) price {
	p := price{}
	for k, i := range victims {
		h := &holders[i]
		p.pods++
		p.cost += h.Cost
		if h.Protected {
			p.protected++
		}
		if k == 0 || h.Priority > p.highest {
			p.highest = h.Priority
		}
	}
	return p
}

// fitsWithout reports whether the request fits its node once the victims have left. It rebuilds the node from all
// others.
func fitsWithout(t *testing.T, nodes []cluster.Node, holders []cluster.VictimCandidate, victims []int, node int,
	r cluster.Request) (*cluster.Cluster, bool) {
	t.Helper()
	var rest []cluster.VictimCandidate
	for i, h := range holders {
		if !slices.Contains(victims, i) {
			rest = append(rest, h)
		}
	}
	c := occupied(t, nodes, rest)
	return c, cluster.Evaluate(c.Node(node), r) == cluster.Fits
}

func TestPreemptIsThatOfBruteForce(t *testing.T) {
	r := rand.New(rand.NewPCG(*seed, 11))
	found, wide := 0, 0
	for round := range 300 {
		// Every third round is of the harder kind: pods on several GPUs, and a machine whose CPU is short too.
		hard := round%3 == 2
		nodes, holders := crowd(r, hard)
		c := occupied(t, nodes, holders)
		q := ask(cluster.Milli(1000*r.IntN(3)), 0, 1+r.IntN(2), cluster.Milli(100*(3+r.IntN(8))), "")
		p, ok := c.Preempt(q, 5, holders)
		best, possible := bruteForce(t, nodes, holders, q, 5)
		if ok != possible {
			t.Fatalf("round %d: found %v, brute force %v", round, ok, possible)
		}
		if !ok {
			continue
		}
		found++
		got := priced(holders, p.Victims)
		if best.less(got) && !hard || got.less(best) {
			t.Fatalf("round %d: %+v at %+v, brute force %+v\n%+v", round, p, got, best, holders)
		}
		after, fits := fitsWithout(t, nodes, holders, p.Victims, p.Node, q)
		if !fits {
			t.Fatalf("round %d: %v gone, and it does not fit", round, p.Victims)
		}
		if err := after.Take(q, p.Placement); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		for _, spared := range p.Victims {
			if holders[spared].Priority >= 5 || holders[spared].Node != p.Node {
				t.Fatalf("round %d: %+v is a victim", round, holders[spared])
			}
			rest := slices.DeleteFunc(slices.Clone(p.Victims), func(i int) bool { return i == spared })
			if _, fits := fitsWithout(t, nodes, holders, rest, p.Node, q); fits {
				t.Fatalf("round %d: %s need not have gone", round, holders[spared].Pod)
			}
		}
		if hard && got.pods > 1 {
			wide++
		}
		if diff := cmp.Diff(occupied(t, nodes, holders).Node(0).GPUs, c.Node(0).GPUs); diff != "" {
			t.Fatalf("round %d: the cluster changed:\n%s", round, diff)
		}
	}
	if found < 100 || wide < 5 {
		t.Errorf("%d found, %d of them of the harder kind: the rounds are too easy", found, wide)
	}
}

// crowd is two or three nodes and who holds what on them.
func crowd(r *rand.Rand, hard bool) ([]cluster.Node, []cluster.VictimCandidate) {
	var nodes []cluster.Node
	var holders []cluster.VictimCandidate
	for node := range 2 + r.IntN(2) {
		n := cluster.Node{CPU: 100_000, Memory: 64 * sharing.GiB, GPUs: full(2)}
		if hard {
			n.CPU = 6000
		}
		nodes = append(nodes, n)
		left, cpu := full(2), n.CPU
		for i := range 7 {
			h := cluster.VictimCandidate{
				Pod: fmt.Sprint(node, "-", i), Node: node, Priority: int32(r.IntN(7)), Cost: int64(r.IntN(20)),
				Protected: r.IntN(5) == 0,
			}
			share, gpus := cluster.Milli(50*(1+r.IntN(9))), []int{r.IntN(2)}
			if hard && r.IntN(3) == 0 {
				gpus = []int{0, 1}
			}
			needs := cluster.Milli(1000)
			if hard {
				needs *= cluster.Milli(r.IntN(3))
			}
			fits := needs <= cpu
			for _, g := range gpus {
				fits = fits && left[g] >= share
			}
			if !fits {
				continue
			}
			for _, g := range gpus {
				left[g] -= share
			}
			cpu -= needs
			h.Grants = []cluster.Grant{{Request: ask(needs, sharing.GiB, len(gpus), share, ""), GPUs: gpus}}
			holders = append(holders, h)
		}
	}
	return nodes, holders
}

// bruteForce tries every set of victims on every node.
func bruteForce(t *testing.T, nodes []cluster.Node, holders []cluster.VictimCandidate, q cluster.Request,
	priority int32) (price,
	bool) {
	t.Helper()
	best, found := price{}, false
	for node := range nodes {
		var here []int
		held := false
		for i, h := range holders {
			held = held || h.Node == node
			if h.Node == node && h.Priority < priority {
				here = append(here, i)
			}
		}
		for set := range 1 << len(here) {
			var victims []int
			for k, i := range here {
				if set&(1<<k) != 0 {
					victims = append(victims, i)
				}
			}
			if p := priced(holders, victims); held && (!found || p.less(best)) {
				if _, fits := fitsWithout(t, nodes, holders, victims, node, q); fits {
					best, found = p, true
				}
			}
		}
	}
	return best, found
}
