// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	others "github.com/kerf-gpu/kerf/lab/policy"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
)

// With GPUs in MIG mode too, each answer equals that of a new cluster in which every node is asked.
func TestChoiceOfInstancesIsThatOfANaiveModel(t *testing.T) {
	nodes := append(migNodes(t, 5, 4), cluster.Node{CPU: 90_000, Memory: sharing.TiB, Model: "H", GPUs: full(4)})
	table := nodes[0].Table
	sample := drawn(table, mixes()["mostly-big"], 1, 500)
	for name, policy := range map[string]cluster.Policy{
		"kerf": cluster.NewKerf(cluster.NewWorkload(sample), nodes), "online": cluster.NewOnline(nodes),
		"fgd": others.NewFGD(cluster.NewWorkload(sample)),
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(*seed, 31))
			c := cluster.New(nodes, policy)
			w := &world{nodes: slices.Clone(nodes), cordoned: map[int]bool{}, withheld: map[[2]int]bool{}}
			refused := 0
			for step, q := range drawn(table, mixes()["mostly-big"], *seed, *steps/20) {
				if r.IntN(4) == 0 {
					q = ask(100, 0, 1, cluster.Milli(50+r.IntN(900)), "")
				}
				change(t, r, c, w)
				c.Learn(q)
				got, ok := c.Choose(q)
				node, gpu, want := choose(w.fresh(t, policy), policy, q)
				if ok != want || ok && (got.Node != node || got.GPUs[0] != gpu) {
					t.Fatalf("step %d: %+v: got %v %v, naive model node %d GPU %d %v", step, q, got, ok, node, gpu,
						want)
				}
				if !ok {
					refused++
				} else if err := c.Take(q, got); err != nil {
					t.Fatalf("step %d: %v", step, err)
				} else {
					w.holds = append(w.holds, held{q, got})
				}
				for len(w.holds) > 0 && r.IntN(100) < 40 {
					i := r.IntN(len(w.holds))
					c.Release(w.holds[i].request, w.holds[i].placement)
					w.holds = slices.Delete(w.holds, i, i+1)
				}
			}
			if refused == 0 && *steps >= 10_000 {
				t.Error("nothing was refused: the cluster was never full")
			}
		})
	}
}

// counting counts surveys.
type counting struct {
	others.BestFit
	surveys int
}

func (c *counting) Observe([]*cluster.Node) bool {
	c.surveys++
	return true
}

// One of 128 GPUs in MIG mode may change without a survey.
func TestSurveysComeWithChanges(t *testing.T) {
	plain := []cluster.Node{{CPU: 9000, Memory: sharing.TiB, GPUs: full(8)}}
	for name, tt := range map[string]struct {
		nodes []cluster.Node
		ask   cluster.Request
		want  []int // surveys after each placement
	}{
		"no MIG":      {plain, ask(100, 0, 1, 100, ""), []int{0, 0, 0}},
		"few GPUs":    {migNodes(t, 2, 4), profile("1g"), []int{1, 2, 3, 4}},
		"256 GPUs":    {migNodes(t, 64, 4), profile("1g"), []int{1, 1, 1, 2, 2, 2, 3}},
		"other nodes": {append(plain, migNodes(t, 1, 4)...), ask(100, 0, 8, 1000, ""), []int{1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			p := &counting{}
			c := cluster.New(tt.nodes, p)
			for i, want := range tt.want {
				at, ok := c.Choose(tt.ask)
				if p.surveys != want {
					t.Fatalf("placement %d: %d surveys, want %d", i, p.surveys, want)
				}
				if !ok {
					continue
				}
				if err := c.Take(tt.ask, at); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// A GPU whose units 0-3 are free is kept for a 4g while there are few of them. Those of nodes that take nothing, and
// those withheld, are none.
func TestHalvesThatTakeNothingAreNone(t *testing.T) {
	const halves = 16
	nodes := migNodes(t, halves+11, 1)
	for name, tt := range map[string]struct {
		out       func(c *cluster.Cluster, node int) error
		completes bool
	}{
		"all take":         {func(*cluster.Cluster, int) error { return nil }, true},
		"one takes":        {func(c *cluster.Cluster, node int) error { return c.Cordon(node, true) }, false},
		"one not withheld": {func(c *cluster.Cluster, node int) error { return c.Withhold(node, 0, true) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			k := cluster.NewKerf(cluster.NewWorkload(drawn(nodes[0].Table, mixes()["mostly-big"], 1, 500)), nodes)
			c := cluster.New(nodes, k)
			for node := range halves {
				if err := c.Take(profile("3g.40gb"), cluster.Placement{Node: node, GPUs: []int{0},
					Starts: []int{4}}); err != nil {
					t.Fatal(err)
				}
				if node > 0 {
					if err := tt.out(c, node); err != nil {
						t.Fatal(err)
					}
				}
			}
			p, ok := c.Choose(profile("3g.40gb"))
			if completes := p.Node < halves; !ok || completes != tt.completes {
				t.Errorf("a 3g goes to node %d at %v", p.Node, p.Starts)
			}
		})
	}
}

// The mix with the fewest small holes depends most on the last empty GPUs. On it kerf allocates 99% when all GPUs were
// requested once.
func TestInstancesFillGPUsAtOnce(t *testing.T) {
	nodes := migNodes(t, migGPUs/4, 4)
	table := nodes[0].Table
	mean := 0.0
	const seeds = 10
	for s := range uint64(seeds) {
		arrivals := drawn(table, mixes()["mostly-big"], 100+s, 300)
		once, _ := filled(t, table, nodes, cluster.NewKerf(cluster.NewWorkload(arrivals), nodes), arrivals)
		mean += once / seeds
	}
	if mean < 99 {
		t.Errorf("%.2f %% allocated", mean)
	}
}
