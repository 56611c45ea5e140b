// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package defrag_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing/defrag"
)

// instance is a problem with its model.
type instance struct {
	defrag.Problem
	model *model
}

// draw makes a problem: pods are placed on random GPUs, and then some end.
func draw(r *rand.Rand, nodes, gpus, most int) instance {
	in := instance{model: newModel(nodes, gpus)}
	for n := range nodes {
		names := make([]string, gpus)
		for g := range names {
			names[g] = fmt.Sprintf("g%d", g)
		}
		in.Nodes = append(in.Nodes, defrag.Node{Name: fmt.Sprintf("n%d", n), GPUs: names})
	}
	in.Budgets = []int{1}
	in.Limits.Moves = 12
	shares := []int{100, 200, 300, 400, 500, 600, 700, 800, 1000}
	for placed, tries := most/2+r.IntN(most/2-1), 0; len(in.Pods) < placed && tries < 200; tries++ {
		a := ask{1, shares[r.IntN(len(shares))]}
		if r.IntN(6) == 0 && gpus > 1 {
			a = ask{2, 1000}
		}
		in.model.asks = append(in.model.asks[:len(in.Pods)], a)
		node := r.IntN(nodes)
		places := in.model.Places(len(in.Pods), node, true)
		if len(places) == 0 {
			continue
		}
		p := podOf(r, len(in.Pods), a)
		p.Placed, p.At = true, places[r.IntN(len(places))]
		in.model.Take(len(in.Pods), p.At)
		in.Pods = append(in.Pods, p)
	}
	for range 1 + r.IntN(2) {
		a := ask{1 + r.IntN(gpus), 1000}
		if r.IntN(2) == 0 {
			a = ask{1, shares[4+r.IntN(5)]}
		}
		in.model.asks = append(in.model.asks[:len(in.Pods)], a)
		in.Pods = append(in.Pods, podOf(r, len(in.Pods), a))
	}
	return in
}

func podOf(r *rand.Rand, i int, a ask) defrag.Pod {
	p := defrag.Pod{UID: fmt.Sprint(i), Name: fmt.Sprintf("p%d", i), GPUs: a.gpus, Demand: int64(a.gpus * a.share),
		Ran: time.Duration(r.IntN(7200)) * time.Second, Priority: int32(r.IntN(3))}
	switch r.IntN(8) {
	case 0:
		p.StayReason = "it requests it"
	case 1:
		p.Budgets = []int{0}
	}
	return p
}

// exhaustive is the search for the least cost for each freed GPU that tries every place of every pod.
type exhaustive struct {
	instance
	waiting     []int
	cost, freed int64 // of the best
	at          []*defrag.Place
}

// bruteForce is the best first step of a problem; freed is 0 if there is none.
func bruteForce(in instance) (cost, freed int64) {
	x := &exhaustive{instance: in, at: make([]*defrag.Place, len(in.Pods))}
	// The pods that fit anyway come first, in the order of their importance.
	var pending []int
	for i := range in.Pods {
		if !in.Pods[i].Placed {
			pending = append(pending, i)
		}
	}
	slices.SortStableFunc(pending, func(a, b int) int {
		if d := in.Pods[b].Priority - in.Pods[a].Priority; d != 0 {
			return int(d)
		}
		return int(in.Pods[b].Demand - in.Pods[a].Demand)
	})
	for _, i := range pending {
		if p, ok := in.model.Best(i); ok {
			in.model.Take(i, p)
		} else {
			x.waiting = append(x.waiting, i)
		}
	}
	var placed []int
	for i := range in.Pods {
		if in.Pods[i].Placed {
			placed = append(placed, i)
			in.model.Release(i, in.Pods[i].At)
		}
	}
	x.pods(placed, 0, 0)
	return x.cost, x.freed
}

// pods lets each pod stay or move to any place.
func (x *exhaustive) pods(rest []int, cost int64, disrupted int) {
	if len(rest) == 0 {
		x.pending(x.waiting, cost, 0)
		return
	}
	i := rest[0]
	p := &x.Pods[i]
	if x.model.Open(i, p.At) {
		x.model.Take(i, p.At)
		x.pods(rest[1:], cost, disrupted)
		x.model.Release(i, p.At)
	}
	if p.StayReason != "" || disrupted+len(p.Budgets) > 1 || x.freed > 0 &&
		(cost+p.Cost())*x.freed >= x.cost*x.wanted() {
		return
	}
	for node := range x.model.Nodes() {
		for _, to := range x.model.Places(i, node, true) {
			x.model.Take(i, to)
			x.at[i] = &to
			x.pods(rest[1:], cost+p.Cost(), disrupted+len(p.Budgets))
			x.at[i] = nil
			x.model.Release(i, to)
		}
	}
}

func (x *exhaustive) wanted() int64 {
	sum := int64(0)
	for _, i := range x.waiting {
		sum += x.Pods[i].Demand
	}
	return sum
}

// pending lets each waiting pod wait on or take any place.
func (x *exhaustive) pending(rest []int, cost, freed int64) {
	if len(rest) == 0 {
		if freed > 0 && (x.freed == 0 || cost*x.freed < x.cost*freed) && x.valid() {
			x.cost, x.freed = cost, freed
		}
		return
	}
	i := rest[0]
	x.pending(rest[1:], cost, freed)
	for node := range x.model.Nodes() {
		for _, to := range x.model.Places(i, node, true) {
			x.model.Take(i, to)
			x.at[i] = &to
			x.pending(rest[1:], cost, freed+x.Pods[i].Demand)
			x.at[i] = nil
			x.model.Release(i, to)
		}
	}
}

// valid reports whether the moves can be carried out in some order. No pod may move for a less important one, or onto a
// GPU of a pending one.
func (x *exhaustive) valid() bool {
	var moves, fits []int
	for i, to := range x.at {
		switch {
		case to == nil:
		case x.Pods[i].Placed:
			moves = append(moves, i)
		default:
			fits = append(fits, i)
		}
	}
	for _, m := range moves {
		for _, f := range fits {
			if x.Pods[m].Priority > x.Pods[f].Priority || x.at[m].Node == x.at[f].Node &&
				slices.ContainsFunc(x.at[m].GPUs, func(g int) bool { return slices.Contains(x.at[f].GPUs, g) }) {
				return false
			}
		}
	}
	return x.inOrder(moves)
}

func (x *exhaustive) inOrder(moves []int) bool {
	now := newModel(len(x.Nodes), len(x.Nodes[0].GPUs))
	now.asks = x.model.asks
	for i := range x.Pods {
		if x.Pods[i].Placed {
			now.Take(i, x.Pods[i].At)
		}
	}
	var try func(rest []int) bool
	try = func(rest []int) bool {
		if len(rest) == 0 {
			return true
		}
		for k, i := range rest {
			now.Release(i, x.Pods[i].At)
			if now.Open(i, *x.at[i]) {
				now.Take(i, *x.at[i])
				if try(slices.Delete(slices.Clone(rest), k, k+1)) {
					return true
				}
				now.Release(i, *x.at[i])
			}
			now.Take(i, x.Pods[i].At)
		}
		return false
	}
	return try(moves)
}

// With at most 8 GPUs and 12 pods, no plan has a lower cost for each freed GPU than the first step.
func TestSmallPlansAreOptimal(t *testing.T) {
	t.Parallel()
	seeds, least := uint64(1000), 80
	if testing.Short() {
		seeds, least = 200, 15
	}
	found := 0
	for seed := range seeds {
		size := [...]struct{ nodes, gpus, pods int }{{1, 4, 8}, {2, 4, 8}, {3, 2, 8}, {4, 2, 7}, {2, 2, 8}}[seed%5]
		if seed%100 == 0 {
			size.nodes, size.gpus, size.pods = 2, 4, 12
		}
		again := func() instance { return draw(rand.New(rand.NewPCG(seed, 1)), size.nodes, size.gpus, size.pods) }
		in := again()
		plan := defrag.Make(&in.Problem, in.model)
		cost, freed := bruteForce(again())
		if (freed > 0) != (len(plan.Steps) > 0) {
			t.Fatalf("seed %d: %d steps, exhaustive search frees %d", seed, len(plan.Steps), freed)
		}
		if freed == 0 {
			continue
		}
		found++
		if s := plan.Steps[0]; s.Cost*freed != cost*s.Freed {
			t.Errorf("seed %d: cost %d for %d, exhaustive search %d for %d", seed, s.Cost, s.Freed, cost, freed)
		}
		check(t, seed, again(), plan)
	}
	if found < least {
		t.Errorf("only %d problems have a plan", found)
	}
}

// check carries a plan out, move by move.
func check(t *testing.T, seed uint64, in instance, plan defrag.Plan) {
	t.Helper()
	at := map[int]defrag.Place{}
	for i := range in.Pods {
		if in.Pods[i].Placed {
			at[i] = in.Pods[i].At
		}
	}
	take := func(i int, p defrag.Place) {
		if !in.model.Open(i, p) {
			t.Errorf("seed %d: the place of pod %d is not free", seed, i)
			return
		}
		in.model.Take(i, p)
		at[i] = p
	}
	for _, f := range plan.Fit {
		take(f.Pod, f.To)
	}
	moved := map[int]bool{}
	for _, s := range plan.Steps {
		for _, m := range s.Moves {
			if in.Pods[m.Pod].StayReason != "" || moved[m.Pod] {
				t.Errorf("seed %d: pod %d must not move", seed, m.Pod)
			}
			moved[m.Pod] = true
			in.model.Release(m.Pod, at[m.Pod])
			take(m.Pod, m.To)
		}
		for _, f := range s.Fits {
			take(f.Pod, f.To)
		}
	}
}
