// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package defrag_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing/defrag"
)

// large is a cluster of nodes with 8 GPUs, all full of small pods to about 80%, and a pending pod with 4 GPUs.
func large(seed uint64, nodes int) instance {
	r := rand.New(rand.NewPCG(seed, 2))
	in := instance{model: newModel(nodes, 8)}
	for n := range nodes {
		in.Nodes = append(in.Nodes, defrag.Node{Name: fmt.Sprintf("n%d", n), GPUs: make([]string, 8)})
		for g := range 8 {
			for used := 0; used < 600; {
				a := ask{1, 100 * (1 + r.IntN(4))}
				i := len(in.Pods)
				in.model.asks = append(in.model.asks, a)
				p := podOf(r, i, a)
				p.Placed, p.At, p.Budgets = true, defrag.Place{Node: n, GPUs: []int{g}}, nil
				p.Priority = 0
				in.model.Take(i, p.At)
				in.Pods = append(in.Pods, p)
				used += a.share
			}
		}
	}
	in.model.asks = append(in.model.asks, ask{4, 1000})
	in.Pods = append(in.Pods, defrag.Pod{UID: "pending", Name: "pending", Class: "4", GPUs: 4, Demand: 4000})
	in.Limits.Moves = 16
	return in
}

// A plan for many nodes can be carried out move by move, and the pending pod then fits.
func TestLargePlans(t *testing.T) {
	t.Parallel()
	found := 0
	for seed := range uint64(10) {
		in := large(seed, 60)
		plan := defrag.Make(&in.Problem, in.model)
		found += len(plan.Steps)
		check(t, seed, large(seed, 60), plan)
	}
	if found < 8 {
		t.Errorf("%d plans for 10 clusters", found)
	}
}

// A search that has reached its bound ends, says so, and leaves the pending pod. No pod moves for one that may fit: the
// middle case has work left for moves, but did not find out whether the pod fits.
func TestBoundOfAPlan(t *testing.T) {
	for work, partial := range map[int64]bool{0: false, 4_000_000: true, 1 << 40: true} {
		in := large(3, 20)
		in.model.work = work
		plan := defrag.Make(&in.Problem, in.model)
		if plan.Partial != partial || partial && (len(plan.Steps) > 0 || len(plan.Left) != 1) {
			t.Errorf("work %d: %+v", work, plan)
		}
	}
}

// At 5,000 nodes a plan is to take less than 2 s.
func BenchmarkLarge(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		in := large(1, 5000)
		b.StartTimer()
		begin := time.Now()
		if plan := defrag.Make(&in.Problem, in.model); len(plan.Steps) == 0 {
			b.Fatal("no plan")
		}
		b.ReportMetric(time.Since(begin).Seconds(), "s/plan")
	}
}

// TestHardSmallProblem: 8 GPUs and 12 pods without a solution end, too.
func TestHardSmallProblem(t *testing.T) {
	in := instance{model: newModel(8, 1)}
	add := func(node int, a ask) {
		i := len(in.Pods)
		in.model.asks = append(in.model.asks, a)
		p := podOf(rand.New(rand.NewPCG(1, 1)), i, a)
		p.Placed, p.At, p.Budgets, p.Priority, p.StayReason = true, defrag.Place{Node: node, GPUs: []int{0}}, nil, 0, ""
		in.model.Take(i, p.At)
		in.Pods = append(in.Pods, p)
	}
	for node := range 8 {
		in.Nodes = append(in.Nodes, defrag.Node{Name: fmt.Sprintf("n%d", node), GPUs: make([]string, 1)})
		add(node, ask{1, 560})
	}
	for node := range 3 {
		add(node, ask{1, 370})
	}
	in.model.asks = append(in.model.asks, ask{1, 1000})
	in.Pods = append(in.Pods, defrag.Pod{UID: "pending", Name: "pending", Class: "1", GPUs: 1, Demand: 1000})
	in.Limits.Moves = 8
	if plan := defrag.Make(&in.Problem, in.model); len(plan.Steps) != 0 {
		t.Errorf("steps %+v", plan.Steps)
	}
}
