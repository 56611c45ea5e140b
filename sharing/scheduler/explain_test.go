// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"testing"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

func TestExplain(t *testing.T) {
	full := func(i int) gpunode.Status {
		return statusOf(i, 2, hold{uid: "a", gpu: 0, memory: 48 + int64(i)},
			hold{uid: "b", gpu: 1, memory: 60, per: 70})
	}
	weak := func(i int) gpunode.Status {
		s := statusOf(i, 2)
		for g := range s.GPUs {
			s.GPUs[g].Levels = []string{"reactive"}
		}
		return s
	}
	old := func(i int) gpunode.Status {
		s := statusOf(i, 2)
		for g := range s.GPUs {
			s.GPUs[g].Model = "T4"
		}
		return s
	}
	bare := func(i int) gpunode.Status {
		s := weak(i)
		for g := range s.GPUs {
			s.GPUs[g].Levels, s.GPUs[g].LevelReason = []string{"exclusive", "none"}, "driver: too old"
		}
		return s
	}
	empty := func(i int) gpunode.Status { return statusOf(i, 2) }
	type status = func(int) gpunode.Status
	level := []string{"kerf.dev/min-enforcement", "driver"}
	tests := []struct {
		name  string
		nodes []status
		pod   sharing.Pod
		want  string
	}{
		{"fits", []status{full, empty}, podOf("p", memory(40)), ""},
		{"memory", []status{full, full, weak, weak, weak}, podOf("p", memory(40), level...),
			"needs 40GiB on one GPU: best of 5 nodes has 31GiB free; 3 nodes lack level driver"},
		{"one node", []status{full, weak}, podOf("p", memory(40), level...),
			"needs 40GiB on one GPU: best of 2 nodes has 31GiB free; 1 node lacks level driver"},
		{"not enforced", []status{bare, bare, full}, podOf("p", memory(40)),
			"needs 40GiB on one GPU: best of 3 nodes has 31GiB free; 2 nodes do not enforce shares (set " +
				"minEnforcement: none on the pool to grant shares without enforcement)"},
		{"not enforced, one node", []status{bare}, podOf("p", memory(40)),
			"needs 40GiB on one GPU: 1 node does not enforce shares (set minEnforcement: none on the pool to grant " +
				"shares without enforcement)"},
		{"model", []status{full, old}, podOf("p", memory(40), "kerf.dev/gpu-model", "H100"),
			"needs 40GiB on one GPU: best of 2 nodes has 31GiB free; 1 node has no GPU of the model or UUID requested"},
		{"percent", []status{full}, podOf("p", map[string]string{sharing.ResourcePercent: "80"}),
			"needs 80% on one GPU: best of 1 node has 100% and 31GiB free"},
		{"whole", []status{full, full}, podOf("p", whole(2)), "needs 2 whole GPUs: best of 2 nodes has 0 free"},
		{"several", []status{full}, podOf("p", memory(50), "kerf.dev/gpu-count", "2"),
			"needs 25GiB on each of 2 GPUs: best of 1 node has enough free on 1"},
		{"ever", []status{full, old}, podOf("p", memory(90)),
			"needs 90GiB on one GPU: 2 nodes have GPUs that are too small"},
		{"together", []status{full}, sharing.Pod{UID: "p",
			Containers: []sharing.PodContainer{{Name: "a", Limits: memory(30)}, {Name: "b", Limits: memory(25)}}},
			"needs 30GiB on one GPU and 25GiB on one GPU together: each would fit alone, and no node has enough " +
				"free for all"},
		{"one of two", []status{full}, sharing.Pod{UID: "p",
			Containers: []sharing.PodContainer{{Name: "a", Limits: memory(30)}, {Name: "b", Limits: memory(50)}}},
			`container "b" needs 50GiB on one GPU: best of 1 node has 31GiB free`},
		{"no nodes", nil, podOf("p", memory(1)), "no node has GPUs that a kerf-agent reports of"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := clusterStateOf(len(tt.nodes), 2)
			for i, make := range tt.nodes {
				b.Report(nodeName(i), make(i%2))
			}
			if got := b.Explain(want(t, tt.pod), noon()); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestExplainCountsNodesThatAreNotHeardFrom(t *testing.T) {
	b := clusterStateOf(2, 1)
	got := b.Explain(want(t, podOf("p", memory(40))), noon().Add(41_000_000_000))
	if want := "needs 40GiB on one GPU: 2 nodes have a kerf-agent that is not heard from"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// Shares gather, and leave whole GPUs and whole nodes free.
func TestScorePrefersWhatIsInUse(t *testing.T) {
	b := clusterStateOf(3, 2)
	b.Report("n01", statusOf(1, 2, hold{uid: "a", gpu: 1, memory: 39, per: 40}))
	w := want(t, podOf("p", map[string]string{sharing.ResourceMemory: "40", sharing.ResourcePercent: "50"}))
	w.CPU = 4000
	score := func(n int) int64 { return b.Score(w, nodeName(n), 60000, noon()) }
	if score(1) <= score(0) || score(0) != score(2) {
		t.Errorf("scores %d %d %d: the second should win, the others be equal", score(0), score(1), score(2))
	}
	if v := b.Fit(w, "n01", noon()); v.Plan[0].Placement[0].GPU.String() != uuid(1, 1) {
		t.Errorf("GPU %s, want the one that is shared already", v.Plan[0].Placement[0].GPU)
	}
	spread := want(t, podOf("q", memory(10), "kerf.dev/placement-policy", "spread"))
	if b.Score(spread, "n01", 60000, noon()) >= b.Score(spread, "n00", 60000, noon()) {
		t.Error("who wants to spread is sent to the node in use")
	}
	if v := b.Fit(spread, "n01", noon()); v.Plan[0].Placement[0].GPU.String() != uuid(1, 0) {
		t.Error("who wants to spread is sent to the GPU in use")
	}
	var none scheduler.PodRequest
	if b.Score(none, "n07", 0, noon()) != 0 {
		t.Error("an unknown node has a score")
	}
}

func TestFitIf(t *testing.T) {
	b := clusterStateOf(1, 1)
	b.Report("n00", statusOf(0, 1, hold{uid: "a", gpu: 0, memory: 30, per: 30},
		hold{uid: "b", gpu: 0, memory: 30, per: 30}))
	large, small := want(t, podOf("large", memory(40))), want(t, podOf("small", memory(19)))
	alone := want(t, podOf("alone", whole(1)))
	for name, tt := range map[string]struct {
		pod    scheduler.PodRequest
		change scheduler.WhatIf
		want   scheduler.Reason
	}{
		"nothing":  {large, scheduler.WhatIf{}, scheduler.LacksCapacity},
		"one away": {large, scheduler.WhatIf{Without: []string{"a"}}, scheduler.Fits},
		"one away, one more": {large, scheduler.WhatIf{Without: []string{"a"}, With: []scheduler.PodRequest{small}},
			scheduler.LacksCapacity},
		"one more": {small, scheduler.WhatIf{With: []scheduler.PodRequest{small}}, scheduler.Fits},
		"another one more": {want(t, podOf("x", memory(1))), scheduler.WhatIf{With: []scheduler.PodRequest{small}},
			scheduler.LacksCapacity},
		"one away, for whole": {alone, scheduler.WhatIf{Without: []string{"a"}}, scheduler.LacksCapacity},
		"both away":           {alone, scheduler.WhatIf{Without: []string{"b", "a"}}, scheduler.Fits},
		"someone else away":   {large, scheduler.WhatIf{Without: []string{"c"}}, scheduler.LacksCapacity},
	} {
		if got := b.FitIf(tt.pod, "n00", tt.change, noon()).Reason; got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	if got := b.Fit(large, "n00", noon()).Reason; got != scheduler.LacksCapacity {
		t.Errorf("it was made: %q", got)
	}
}
