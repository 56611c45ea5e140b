// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"testing"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

// Where a GPU is overcommitted, plans go up to the factor and not beyond, and who demands that neighbours take nothing from him gets
// none of it.
func TestOvercommit(t *testing.T) {
	t.Parallel()
	b := booksOf(1, 1)
	s := statusOf(0, 1)
	g := &s.GPUs[0]
	g.Overcommit = &gpunode.Overcommit{MemoryPercent: 150, ComputePercent: 200}
	g.FreeBytes, g.FreePercent = 118*gib, 200 // 1.5 times 79 GiB
	b.Report("n00", s)
	fits := func(uid string, limits map[string]string, annotations ...string) scheduler.Reason {
		t.Helper()
		w := want(t, podOf(uid, limits, annotations...))
		v := b.Fit(w, "n00", noon())
		if v.Reason == scheduler.Fits {
			if _, err := b.Reserve(w, "n00", noon()); err != nil {
				t.Fatal(err)
			}
		}
		return v.Reason
	}
	if got := fits("large", memory(80)); got != scheduler.TooSmall {
		t.Errorf("more than the GPU has, in one piece: %v", got)
	}
	if got := fits("strict", memory(1), "kerf.dev/min-enforcement", "driver"); got != scheduler.LacksLevel {
		t.Errorf("a level that holds neighbours off: %v", got)
	}
	if got := fits("loose", memory(1), "kerf.dev/min-enforcement", "client"); got != scheduler.Fits {
		t.Errorf("a level that does not: %v", got)
	}
	for _, uid := range []string{"a", "b"} {
		if got := fits(uid, memory(50)); got != scheduler.Fits {
			t.Errorf("50 GiB for %s: %v", uid, got)
		}
	}
	if got := fits("c", memory(18)); got != scheduler.LacksRoom {
		t.Errorf("119 GiB of 118: %v", got)
	}
	if got := fits("d", memory(17)); got != scheduler.Fits {
		t.Errorf("118 GiB of 118: %v", got)
	}
}

// What an agent says of its GPUs' settings counts for plans, too: one that is planned counts as a sharer.
func TestSettings(t *testing.T) {
	t.Parallel()
	b := booksOf(1, 3)
	s := statusOf(0, 3, hold{uid: "a", gpu: 0, memory: 1})
	s.GPUs[0].MaxSharers, s.GPUs[1].Gives, s.GPUs[2].Gives = 2, "whole", "nothing"
	b.Report("n00", s)
	fits := func(p sharing.Pod) (scheduler.Verdict, bool) {
		t.Helper()
		v := b.Fit(want(t, p), "n00", noon())
		return v, v.Reason == scheduler.Fits
	}
	first := podOf("b", memory(1))
	if v, ok := fits(first); !ok || v.Plan[0].Placement[0].GPU != sharing.GPUID(uuid(0, 0)) {
		t.Fatalf("the second sharer: %+v", v)
	}
	if _, err := b.Reserve(want(t, first), "n00", noon()); err != nil {
		t.Fatal(err)
	}
	if v, ok := fits(podOf("c", memory(1))); ok || v.Reason != scheduler.LacksRoom {
		t.Errorf("the third sharer: %+v", v)
	}
	if v, ok := fits(podOf("d", whole(1))); !ok || v.Plan[0].Placement[0].GPU != sharing.GPUID(uuid(0, 1)) {
		t.Errorf("a whole GPU: %+v", v)
	}
	if v, ok := fits(podOf("e", whole(2))); ok {
		t.Errorf("two whole GPUs: %+v", v)
	}
}
