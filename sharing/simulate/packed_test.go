// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package simulate_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/simulate"
)

// shares is a run with departures of pods of these shares, on one node.
func shares(t *testing.T, policy string, gpus int, load float64, bound bool, each ...cluster.Milli) simulate.Result {
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
	chosen, err := simulate.NewPolicy(policy, nodes, pods, 7)
	if err != nil {
		t.Fatal(err)
	}
	r, err := simulate.Experiment{Nodes: nodes, Usual: pods, Policy: chosen, Now: func() time.Time { return time.Time{} }, Counted: 200, Bound: bound}.Churn(pods, load, 7)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestWhatNoPackingHasRoomFor(t *testing.T) {
	// One GPU holds one of them, whatever the policy.
	r := shares(t, "bestfit", 1, 1, true, 700)
	if r.RejectedDemandPercent < 10 || r.NoPacking.Percent != r.RejectedDemandPercent || r.NoPacking.Rejects["share"] != r.Rejects["share"] {
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
