// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package measure_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/lab/measure"
	"github.com/kerf-gpu/kerf/lab/policy"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/simulate"
)

// shares is a run with departures of pods of these shares, on one node.
func shares(t *testing.T, name string, gpus int, load float64, bound bool, each ...cluster.Milli) simulate.Result {
	t.Helper()
	n := cluster.Node{Name: "n"}
	for range gpus {
		n.GPUs = append(n.GPUs, cluster.WholeGPU)
	}
	var pods []simulate.Pod
	for _, share := range each {
		p := simulate.Pod{}
		p.GPUs, p.Share = 1, share
		pods = append(pods, p)
	}
	nodes := []cluster.Node{n}
	chosen, err := policy.New(name, nodes, pods, 7)
	if err != nil {
		t.Fatal(err)
	}
	var observers []simulate.Observer
	if bound {
		observers = append(observers, measure.NewPacking(nodes))
	}
	r, err := simulate.Experiment{Nodes: nodes, Typical: pods, Policy: chosen, Now: still, Counted: 200,
		Observers: observers}.Churn(pods, load, 7)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestWhatNoPackingHasRoomFor(t *testing.T) {
	// One GPU holds one of them, whatever the policy.
	r := shares(t, "bestfit", 1, 1, true, 700)
	if r.RejectedDemandPercent < 10 || r.NoPacking.Percent != r.RejectedDemandPercent ||
		r.NoPacking.Rejects["share"] != r.Rejects["share"] {
		t.Errorf("%.2f %% refused (%v), %+v", r.RejectedDemandPercent, r.Rejects, r.NoPacking)
	}
	// Small ones on every GPU keep large ones out, and need not.
	bad := shares(t, "spread", 4, 0.6, true, 300, 800)
	if n := bad.NoPacking.Percent; n <= 0 || n > bad.RejectedDemandPercent/2 {
		t.Errorf("%.2f %% refused, no packing for %.2f %%", bad.RejectedDemandPercent, n)
	}
	for class, n := range bad.NoPacking.Rejects {
		if n > bad.Rejects[class] {
			t.Errorf("%s: %d of %d", class, n, bad.Rejects[class])
		}
	}
}

func TestAskingForTheBoundChangesNothingElse(t *testing.T) {
	with, without := shares(t, "kerf", 4, 0.9, true, 300, 800, 500), shares(t, "kerf", 4, 0.9, false, 300, 800, 500)
	if without.NoPacking != nil || with.NoPacking == nil {
		t.Fatalf("%+v and %+v", with.NoPacking, without.NoPacking)
	}
	with.NoPacking = nil
	if d := cmp.Diff(without, with); d != "" {
		t.Error(d)
	}
}

func still() time.Time { return time.Time{} }

// One GPU that a pool has wholly is refused only when it is in use; half of it is never enough for a whole one.
func TestPoolRefusesForTheLoadAlone(t *testing.T) {
	nodes := []cluster.Node{{CPU: 1_000_000, GPUs: []cluster.Milli{1000}},
		{CPU: 1_000_000, GPUs: []cluster.Milli{1000}}}
	pods := []simulate.Pod{{Name: "a", Request: cluster.Request{Shape: cluster.Shape{GPUs: 1, Share: 600}}}}
	run := func(usable, lives float64) simulate.Result {
		e := simulate.Experiment{Nodes: nodes, Typical: pods, Policy: policy.BestFit{}, Now: still, Counted: lives}
		if usable > 0 {
			e.Observers = append(e.Observers, measure.NewPool(nodes, usable))
		}
		r, err := e.Churn(pods, 0.5, 1)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	// Two of 600 fit two GPUs, and a pool takes a third: it refuses less. With a part of it that holds none, all.
	all, none, off := run(1, 200), run(0.2, 200), run(0, 200)
	if all.PooledRejectedPercent <= 0 || all.PooledRejectedPercent >= all.RejectedDemandPercent ||
		none.PooledRejectedPercent != 100 || off.PooledRejectedPercent != 0 {
		t.Errorf("pool %v of %v, none %v, off %v", all.PooledRejectedPercent, all.RejectedDemandPercent,
			none.PooledRejectedPercent, off.PooledRejectedPercent)
	}
	if off.RejectedDemandPercent != all.RejectedDemandPercent {
		t.Error("the pool changes the run")
	}
	if short := run(0, 2); short.ArrivedMilli*20 > all.ArrivedMilli {
		t.Errorf("%d arrived in 2 lives, %d in 200", short.ArrivedMilli, all.ArrivedMilli)
	}
}
