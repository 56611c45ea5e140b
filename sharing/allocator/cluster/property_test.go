// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	others "github.com/kerf-gpu/kerf/lab/policy"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
)

var (
	steps = flag.Int("steps", 10_000, "random steps of the property test, over all policies")
	seed  = flag.Uint64("seed", 7, "seed of the property test")
)

type held struct {
	request   cluster.Request
	placement cluster.Placement
}

// world is what the naive model remembers: it has no state but what happened, and recomputes the rest.
type world struct {
	nodes    []cluster.Node
	holds    []held
	cordoned map[int]bool
	withheld map[[2]int]bool
}

// fresh is a cluster that is built again from all current grants, so that it has no cached values.
func (w *world) fresh(t *testing.T, p cluster.Policy) *cluster.Cluster {
	t.Helper()
	c := cluster.New(w.nodes, p)
	for _, h := range w.holds {
		if err := c.Take(h.request, h.placement); err != nil {
			t.Fatalf("overbooked: %v", err)
		}
	}
	for i := range w.cordoned {
		if err := c.Cordon(i, true); err != nil {
			t.Fatal(err)
		}
	}
	for at := range w.withheld {
		if err := c.Withhold(at[0], at[1], true); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// choose asks the policy about every node.
func choose(c *cluster.Cluster, p cluster.Policy, r cluster.Request) (int, int, bool) {
	best, gpu, most := -1, 0, int64(0)
	for i := range c.Len() {
		if cluster.Evaluate(c.Node(i), r) != cluster.Fits {
			continue
		}
		if score, g := p.Score(c.Node(i), c.Node(i).Resolve(r.Shape)); best < 0 || score > most {
			best, gpu, most = i, g, score
		}
	}
	return best, gpu, best >= 0
}

// free counts what is left by hand.
func (w *world) free() (cpu []cluster.Milli, memory []sharing.Bytes, gpus [][]cluster.Milli) {
	for i := range w.nodes {
		cpu, memory, gpus = append(cpu, w.nodes[i].CPU), append(memory, w.nodes[i].Memory),
			append(gpus, slices.Clone(w.nodes[i].GPUs))
	}
	for _, h := range w.holds {
		i := h.placement.Node
		cpu[i] -= h.request.CPU
		memory[i] -= h.request.Memory
		for _, g := range h.placement.GPUs {
			gpus[i][g] -= h.request.Share
		}
	}
	for at := range w.withheld {
		gpus[at[0]][at[1]] = 0
	}
	return cpu, memory, gpus
}

func TestChoiceIsThatOfANaiveModel(t *testing.T) {
	nodes, sample := mix(rand.New(rand.NewPCG(1, 1)), 500)
	w := cluster.NewWorkload(sample)
	policies := map[string]cluster.Policy{
		"kerf": cluster.NewKerf(w, nodes), "online": cluster.NewOnline(nodes), "fgd": others.NewFGD(w),
		"bestfit": others.BestFit{},
		"dotprod": others.DotProd{}, "spread": cluster.Spread{}, "packing": others.Packing{},
		"clustering": others.Clustering{},
		"whole":      others.WholeOnly{}, "timeslice": others.TimeSlice{}, "hami": others.HAMiBinpack{},
		"kai": others.KAIGPUPack{},
	}
	for name, policy := range policies {
		t.Run(name, func(t *testing.T) { against(t, nodes, policy, *steps/len(policies)) })
	}
}

// against lets requests come and go and nodes change at random, and compares each answer with the naive model.
func against(t *testing.T, nodes []cluster.Node, policy cluster.Policy, steps int) {
	r := rand.New(rand.NewPCG(*seed, *seed))
	_, requests := mix(r, steps)
	c := cluster.New(nodes, policy)
	w := &world{nodes: slices.Clone(nodes), cordoned: map[int]bool{}, withheld: map[[2]int]bool{}}
	refused := 0
	for step, q := range requests {
		for len(w.holds) > 0 && r.IntN(100) < 45 {
			i := r.IntN(len(w.holds))
			c.Release(w.holds[i].request, w.holds[i].placement)
			w.holds = slices.Delete(w.holds, i, i+1)
		}
		change(t, r, c, w)
		c.Learn(q)
		got, ok := c.Choose(q)
		fresh := w.fresh(t, policy)
		node, gpu, want := choose(fresh, policy, q)
		if ok != want || ok && (got.Node != node || q.GPUs == 1 && got.GPUs[0] != gpu) {
			t.Fatalf("step %d: %+v: got %v %v, naive model node %d GPU %d %v", step, q, got, ok, node, gpu, want)
		}
		if !ok {
			refused++
			if n := len(c.Refusals(q)); n != c.Len() {
				t.Fatalf("step %d: refused, and %d of %d nodes say why", step, n, c.Len())
			}
			continue
		}
		if err := c.Take(q, got); err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		w.holds = append(w.holds, held{q, got})
		cpu, memory, gpus := w.free()
		for i := range c.Len() {
			n := c.Node(i)
			if cpu[i] != n.CPU || memory[i] != n.Memory || !slices.Equal(gpus[i], n.GPUs) || cpu[i] < 0 ||
				slices.Min(gpus[i]) < 0 {
				t.Fatalf("step %d: the state says %v %v %v, cluster %+v", step, cpu[i], memory[i], gpus[i], *n)
			}
		}
	}
	if refused == 0 && steps > 500 {
		t.Error("nothing was refused: the cluster was never full")
	}
}

// change lets a node or a GPU go or come back, or a node join, once in a while.
func change(t *testing.T, r *rand.Rand, c *cluster.Cluster, w *world) {
	t.Helper()
	var err error
	switch r.IntN(40) {
	case 0:
		i := r.IntN(c.Len())
		if w.cordoned[i] {
			delete(w.cordoned, i)
		} else {
			w.cordoned[i] = true
		}
		err = c.Cordon(i, w.cordoned[i])
	case 1:
		i := r.IntN(c.Len())
		at := [2]int{i, r.IntN(len(c.Node(i).GPUs))}
		if w.withheld[at] {
			delete(w.withheld, at)
		} else {
			w.withheld[at] = true
		}
		err = c.Withhold(at[0], at[1], w.withheld[at])
	case 2:
		if c.Len() < 30 {
			n := cluster.Node{Name: fmt.Sprint("new", c.Len()), CPU: 16000, Memory: sharing.TiB, Model: "C",
				GPUs: full(4)}
			n.Topology = []cluster.Place{{NVLink: 1}, {NVLink: 2}, {NVLink: 1}, {NVLink: 2}}
			w.nodes = append(w.nodes, n)
			if at := c.Add(n); at != len(w.nodes)-1 {
				t.Fatalf("added as %d", at)
			}
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// With many nodes and few shapes, changes are taken up one by one; with a shape not asked for since long, all at once.
func TestChoiceAmongManyNodes(t *testing.T) {
	r := rand.New(rand.NewPCG(*seed, 7))
	var nodes []cluster.Node
	for range 333 {
		nodes = append(nodes, cluster.Node{CPU: 64000, Memory: sharing.Bytes(1+r.IntN(4)) * sharing.GiB, Model: "A",
			GPUs: full(1 + r.IntN(3))})
	}
	shapes := []cluster.Shape{{GPUs: 1, Share: 300}, {GPUs: 1, Share: 450, CPU: 8000}, {GPUs: 1, Share: 1000},
		{GPUs: 2, Share: 1000}, {CPU: 16000}}
	c := cluster.New(nodes, others.BestFit{})
	var holds []held
	for step := range 3000 {
		q := cluster.Request{Shape: shapes[r.IntN(2)], Memory: sharing.Bytes(r.IntN(3)) * sharing.GiB}
		if r.IntN(100) < 5 {
			q.Shape = shapes[r.IntN(len(shapes))]
		}
		got, ok := c.Choose(q)
		node, _, want := choose(c, others.BestFit{}, q)
		if ok != want || ok && got.Node != node {
			t.Fatalf("step %d: %+v: got %v %v, naive model node %d %v", step, q, got, ok, node, want)
		}
		if ok {
			if err := c.Take(q, got); err != nil {
				t.Fatal(err)
			}
			holds = append(holds, held{q, got})
		}
		for len(holds) > 700 || len(holds) > 0 && r.IntN(100) < 30 {
			i := r.IntN(len(holds))
			c.Release(holds[i].request, holds[i].placement)
			holds = slices.Delete(holds, i, i+1)
		}
	}
}
