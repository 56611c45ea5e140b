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
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
)

func TestGangStaysTogether(t *testing.T) {
	var nodes []cluster.Node
	for i := range 6 {
		nodes = append(nodes, cluster.Node{Name: fmt.Sprint(i), CPU: 64000, GPUs: full(4)})
	}
	cliques := []string{"", "x", "x", "y", "y", ""}
	racks := []string{"r", "r", "r", "q", "q", "q"}
	whole := ask(1000, 0, 4, cluster.WholeGPU, "")
	tests := map[string]struct {
		n      int
		taken  []int // nodes that are full
		level  int
		domain string
		nodes  []int
		none   bool
	}{
		"one clique":           {n: 2, level: 0, domain: "x", nodes: []int{1, 2}},
		"the clique with room": {n: 2, taken: []int{1}, level: 0, domain: "y", nodes: []int{3, 4}},
		"the tightest is used": {n: 1, taken: []int{3}, level: 0, domain: "y", nodes: []int{4}},
		"one rack":             {n: 3, taken: []int{0}, level: 1, domain: "q", nodes: []int{3, 4, 5}},
		"over racks":           {n: 4, level: 2, nodes: []int{0, 1, 2, 3}},
		"all":                  {n: 6, level: 2, nodes: []int{0, 1, 2, 3, 4, 5}},
		"one too many for all": {n: 7, none: true},
		"what is taken counts": {n: 6, taken: []int{5}, none: true},
		"no request":           {n: 0, level: 0, domain: "x"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := cluster.New(nodes, others.BestFit{})
			for _, i := range tt.taken {
				if err := c.Take(whole, cluster.Placement{Node: i, GPUs: []int{0, 1, 2, 3}}); err != nil {
					t.Fatal(err)
				}
			}
			got, ok := c.Gang(slices.Repeat([]cluster.Request{whole}, tt.n), cliques, racks)
			if ok == tt.none {
				t.Fatalf("found %v: %+v", ok, got)
			}
			var on []int
			for _, p := range got.Placements {
				on = append(on, p.Node)
			}
			slices.Sort(on)
			if ok && (got.Level != tt.level || got.Domain != tt.domain) || !slices.Equal(on, tt.nodes) {
				t.Errorf("got %+v on %v, want level %d %q on %v", got, on, tt.level, tt.domain, tt.nodes)
			}
		})
	}
}

// The naive model tries every node for every member.
func TestGangIsAllOrNoneAndThatOfANaiveModel(t *testing.T) {
	r := rand.New(rand.NewPCG(*seed, 13))
	levels, refused := map[int]int{}, 0
	for round := range 300 {
		var nodes []cluster.Node
		var cliques, racks []string
		for i := range 4 + r.IntN(2) {
			n := cluster.Node{CPU: cluster.Milli(4000 + 4000*r.IntN(4)), GPUs: full(1 + r.IntN(3))}
			for g := range n.GPUs {
				n.GPUs[g] = cluster.Milli(100 * (2 + r.IntN(9)))
			}
			nodes = append(nodes, n)
			cliques = append(cliques, []string{"", "a", "b"}[r.IntN(3)])
			racks = append(racks, []string{"r", "s"}[i%2])
		}
		c := cluster.New(nodes, others.BestFit{})
		q := ask(cluster.Milli(1000*(1+r.IntN(4))), 0, 1, cluster.Milli(100*(2+r.IntN(8))), "")
		if r.IntN(4) == 0 {
			q = ask(1000, 0, 2, cluster.WholeGPU, "")
		}
		gang := slices.Repeat([]cluster.Request{q}, 1+r.IntN(6))
		got, ok := c.Gang(gang, cliques, racks)
		for i := range nodes {
			if diff := cmp.Diff(nodes[i].GPUs, c.Node(i).GPUs); diff != "" || c.Node(i).CPU != nodes[i].CPU {
				t.Fatalf("round %d: asking changed the state: %s", round, diff)
			}
		}
		level, want := naiveLevel(nodes, gang, cliques, racks)
		if ok != want || ok && got.Level != level {
			t.Fatalf("round %d: found %v at level %d, naive model %v at %d", round, ok, got.Level, want, level)
		}
		if !ok {
			refused++
			continue
		}
		levels[got.Level]++
		for i, p := range got.Placements {
			if err := c.Take(gang[i], p); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			if got.Level < 2 && [][]string{cliques, racks}[got.Level][p.Node] != got.Domain {
				t.Fatalf("round %d: %+v is not in %q", round, p, got.Domain)
			}
		}
	}
	if refused < 20 || levels[0] < 20 || levels[1] < 10 || levels[2] < 10 {
		t.Errorf("levels %v, %d refused: the rounds are too much alike", levels, refused)
	}
}

// naiveLevel is the first level at which one domain holds the gang, by trying everything.
func naiveLevel(nodes []cluster.Node, gang []cluster.Request, domains ...[]string) (int, bool) {
	for level, names := range domains {
		for _, name := range names {
			if name == "" {
				continue
			}
			var in []cluster.Node
			for i, other := range names {
				if other == name {
					in = append(in, nodes[i])
				}
			}
			if placeable(in, gang) {
				return level, true
			}
		}
	}
	return len(domains), placeable(nodes, gang)
}

func placeable(nodes []cluster.Node, gang []cluster.Request) bool {
	if len(gang) == 0 {
		return true
	}
	q := gang[0]
	for i := range nodes {
		if nodes[i].CPU < q.CPU {
			continue
		}
		for set := range 1 << len(nodes[i].GPUs) {
			var gpus []int
			for g, left := range nodes[i].GPUs {
				if set&(1<<g) != 0 && left >= q.Share {
					gpus = append(gpus, g)
				} else if set&(1<<g) != 0 {
					gpus = append(gpus, -1)
				}
			}
			if len(gpus) != q.GPUs || slices.Contains(gpus, -1) {
				continue
			}
			nodes[i].CPU -= q.CPU
			for _, g := range gpus {
				nodes[i].GPUs[g] -= q.Share
			}
			fits := placeable(nodes, gang[1:])
			nodes[i].CPU += q.CPU
			for _, g := range gpus {
				nodes[i].GPUs[g] += q.Share
			}
			if fits {
				return true
			}
		}
	}
	return false
}
