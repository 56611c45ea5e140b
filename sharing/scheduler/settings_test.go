// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

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
