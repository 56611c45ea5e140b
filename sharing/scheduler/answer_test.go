// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

// The first answer is the node that would be chosen, as if the pod were not there yet; the others say why not.
func TestAnswers(t *testing.T) {
	b := clusterStateOf(4, 2)
	b.Report("n00", statusOf(0, 2, hold{uid: "p", memory: 40}, hold{uid: "x", gpu: 1, memory: 70}))
	b.Report("n01", statusOf(1, 2, hold{uid: "y", memory: 60}, hold{uid: "z", gpu: 1, memory: 60}))
	b.Heartbeat("n03", noon().Add(-time.Hour), 40*time.Second, noon())
	stale := noon().Add(41 * time.Second)
	for _, n := range []string{"n00", "n01", "n02"} {
		b.Heartbeat(n, stale, 40*time.Second, stale)
	}
	p := podOf("p", memory(40), sharing.PlacementAnnotation("main"), uuid(0, 0))
	p.Node = "n00"
	w := want(t, p)
	b.Pod(p, w, noon())
	var got []string
	for _, a := range b.Answers(w, nil, stale) {
		line := fmt.Sprintf("%s: %v", a.Node, a.Reason)
		if a.Reason == scheduler.Fits {
			line += fmt.Sprintf(" on %s", a.Plan[0].Placement[0].GPU)
			sum := int64(0)
			for _, term := range a.Terms {
				sum += term.Value
			}
			if sum < a.Score/100_000 || len(a.Terms) == 0 {
				t.Errorf("%s: score %d, terms %v", a.Node, a.Score, a.Terms)
			}
		}
		got = append(got, line)
	}
	wanted := []string{
		"n00: fits on " + uuid(0, 0), "n02: fits on " + uuid(2, 0), "n03: kerf-agent was not heard from in time",
		"n01: too little free on any one GPU",
	}
	if d := cmp.Diff(wanted, got); d != "" {
		t.Error(d)
	}
	// It is what Score and Fitting say of another pod that requests the same, once this one is gone.
	b.Report("n00", statusOf(0, 2, hold{uid: "x", gpu: 1, memory: 70}))
	b.PodRemoved("p", stale)
	q := want(t, podOf("q", memory(40)))
	for _, a := range b.Answers(q, nil, stale)[:2] {
		if score := b.Score(q, a.Node, machine().CPU, stale); score != a.Score {
			t.Errorf("%s: %d, Score says %d", a.Node, a.Score, score)
		}
		if d := cmp.Diff(b.Terms(q, a.Node, machine().CPU, stale), a.Terms); d != "" {
			t.Error(d)
		}
	}
}

func TestStanding(t *testing.T) {
	b := clusterStateOf(1, 2)
	p := podOf("p", memory(40), sharing.PlacementAnnotation("main"), uuid(0, 1))
	if _, ok := b.Standing("p"); ok {
		t.Error("an unreported pod is on a node")
	}
	p.Node = "n00"
	b.Pod(p, want(t, p), noon())
	s := statusOf(0, 2)
	s.PendingPods = []gpunode.PendingPod{{PodUID: "p", Reason: "not enough free"}}
	b.Report("n00", s)
	planned := scheduler.Standing{Node: "n00", Plan: map[string][]string{"main": {uuid(0, 1)}},
		Unplaced: "not enough free"}
	got, _ := b.Standing("p")
	if d := cmp.Diff(planned, got); d != "" {
		t.Error(d)
	}
	b.Report("n00", statusOf(0, 2, hold{uid: "p", memory: 40}))
	planned.Unplaced, planned.Has = "", sharing.Placement{{GPU: sharing.GPURef{UUID: sharing.GPUID(uuid(0, 0))},
		Memory: 40 * sharing.GiB}}
	got, _ = b.Standing("p")
	if d := cmp.Diff(planned, got); d != "" {
		t.Error(d)
	}
}
