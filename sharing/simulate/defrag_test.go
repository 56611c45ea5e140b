// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package simulate_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/simulate"
)

// Moves reduce what is rejected, and without them nothing changes. Equal seeds give equal results.
func TestDefragRejectsLess(t *testing.T) {
	t.Parallel()
	var nodes []cluster.Node
	for i := range 6 {
		nodes = append(nodes, cluster.Node{Name: fmt.Sprint(i), CPU: 64000, Model: "a",
			GPUs: slices.Repeat([]cluster.Milli{cluster.WholeGPU}, 4)})
	}
	var pods []simulate.Pod
	for i := range 40 {
		p := simulate.Pod{Name: fmt.Sprint(i)}
		p.GPUs, p.Share, p.CPU = 1, cluster.Milli(100*(1+i%7)), 1000
		if i%10 == 0 {
			p.GPUs, p.Share = 4, cluster.WholeGPU
		}
		pods = append(pods, p)
	}
	run := func(d simulate.Defrag) simulate.Result {
		e := simulate.Experiment{Nodes: nodes, Typical: pods, Policy: simulate.NewKerf(nodes, pods),
			Now: func() time.Time {
				return time.Time{}
			}, Counted: 20, Defrag: d}
		r, err := e.Churn(pods, 0.7, 1)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	without, with := run(simulate.Defrag{}), run(simulate.Defrag{Moves: 8})
	if without.Moved != nil || with.Moved == nil || with.Moved.Moves == 0 ||
		with.RejectedDemandPercent >= without.RejectedDemandPercent {
		t.Errorf("rejected %v without moves, %v with %+v", without.RejectedDemandPercent, with.RejectedDemandPercent,
			with.Moved)
	}
	if again := run(simulate.Defrag{Moves: 8}); *again.Moved != *with.Moved ||
		again.RejectedDemandPercent != with.RejectedDemandPercent {
		t.Errorf("the same seed gives %+v and %+v", again.Moved, with.Moved)
	}
	if dear := run(simulate.Defrag{Moves: 8, CostPerGPU: 1}); dear.Moved.Moves > 0 {
		t.Errorf("%d moves, and each costs more than the limit", dear.Moved.Moves)
	}
}
