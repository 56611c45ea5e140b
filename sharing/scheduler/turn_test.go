// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"testing"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

// switchStatus is the report of a node of so many GPUs that are not in MIG mode, and which it would put there.
func switchStatus(node, gpus int, holds ...hold) gpunode.Status {
	s := statusOf(node, gpus, holds...)
	for i := range s.GPUs {
		g := &s.GPUs[i]
		g.MIGState = &gpunode.MIGState{MemorySlices: 8, Geometry: slices7()}
		if g.GrantedBytes == 0 {
			g.SwitchableTo = "mig"
		}
	}
	return s
}

// backStatus is one of GPUs in MIG mode which it would take out of it.
func backStatus(node, gpus int, grants ...migGrant) gpunode.Status {
	s := migStatus(node, gpus, grants...)
	for i := range s.GPUs {
		s.GPUs[i].SwitchableTo, s.GPUs[i].Levels = "shared", []string{"hardware", "exclusive", "driver"}
	}
	for _, p := range grants {
		s.GPUs[p.gpu].SwitchableTo = ""
	}
	return s
}

// The mode that an idle GPU can switch to counts for requests. A share of that mode takes the other mode away, and its
// end gives it back.
func TestGPUsThatChange(t *testing.T) {
	hard := []string{"kerf.dev/min-enforcement", "hardware"}
	for name, tc := range map[string]struct {
		status      gpunode.Status
		limits      map[string]string
		annotations []string
		want        scheduler.Reason
	}{
		"an instance":                {switchStatus(0, 1), mig("3g.40gb"), nil, scheduler.Fits},
		"memory that hardware holds": {switchStatus(0, 1), memory(15), hard, scheduler.Fits},
		"a share, as it is":          {switchStatus(0, 1), memory(15), nil, scheduler.Fits},
		"an instance next to a share": {switchStatus(0, 1, hold{"a", 0, 10, 0, 0}), mig("3g.40gb"), nil,
			scheduler.LacksInstance},
		"a profile that it has not":  {switchStatus(0, 1), mig("2g.12gb"), nil, scheduler.NotOffered},
		"a share of one in MIG mode": {backStatus(0, 1), memory(15), nil, scheduler.Fits},
		"all of one in MIG mode":     {backStatus(0, 1), whole(1), nil, scheduler.Fits},
		"two of which one changes": {backStatus(0, 2, migGrant{"a", 1, "1g.10gb", 0}), whole(2), nil,
			scheduler.WrongModel},
		"a share next to an instance": {backStatus(0, 1, migGrant{"a", 0, "1g.10gb", 0}), memory(15), nil,
			scheduler.WrongModel},
		"an instance of one in MIG mode": {backStatus(0, 1), mig("7g.80gb"), nil, scheduler.Fits},
		"more memory than it has":        {backStatus(0, 1), memory(90), nil, scheduler.WrongModel},
		"in MIG mode, and stays":         {migStatus(0, 1), memory(15), nil, scheduler.WrongModel},
		"not in MIG mode yet, and is used": {switchStatus(0, 1, hold{"a", 0, 0, 0, 0}), memory(15), hard,
			scheduler.LacksInstance},
	} {
		t.Run(name, func(t *testing.T) {
			b := migState(tc.status)
			v := b.Fit(want(t, podOf("p", tc.limits, tc.annotations...)), "n00", noon())
			if v.Reason != tc.want {
				t.Errorf("%v (%s), want %v", v.Reason, v.Text, tc.want)
			}
		})
	}
}

// A plan on a GPU that changes its mode is reserved before its node reports it. Nothing of the other kind fits, and the
// rest of the same kind does. When the plan is given up all is as it was.
func TestPlansOnGPUsThatChange(t *testing.T) {
	fits := func(b *scheduler.ClusterState, limits map[string]string) bool {
		t.Helper()
		return b.Fit(want(t, podOf("q", limits)), "n00", noon()).Reason == scheduler.Fits
	}
	reserve := func(b *scheduler.ClusterState, uid string, limits map[string]string) {
		t.Helper()
		if _, err := b.Reserve(want(t, podOf(uid, limits)), "n00", noon()); err != nil {
			t.Fatal(err)
		}
	}
	b := migState(switchStatus(0, 1))
	reserve(b, "a", mig("3g.40gb"))
	if fits(b, memory(1)) || fits(b, whole(1)) || fits(b, mig("7g.80gb")) || !fits(b, mig("3g.40gb")) {
		t.Error("next to a planned instance: a share, all of it, or too large an instance has room, or none that fits")
	}
	reserve(b, "b", mig("3g.40gb"))
	if fits(b, mig("1g.10gb")) {
		t.Error("a third instance")
	}
	b.Unreserve("a")
	b.Unreserve("b")
	if !fits(b, memory(79)) || !fits(b, mig("7g.80gb")) {
		t.Error("not as it was")
	}
	b = migState(backStatus(0, 1))
	reserve(b, "a", memory(40))
	if fits(b, mig("1g.10gb")) || fits(b, memory(40)) || !fits(b, memory(39)) {
		t.Error("next to a planned share: an instance or too much has room, or what is left has none")
	}
	b.Unreserve("a")
	if !fits(b, mig("7g.80gb")) || !fits(b, whole(1)) {
		t.Error("not as it was")
	}
}

// A GPU that need not change is taken before one that must, on a node and among nodes.
func TestChangesComeLast(t *testing.T) {
	s := switchStatus(0, 2)
	s.GPUs[1] = backStatus(0, 2).GPUs[1]
	b := migState(s)
	for uid, tc := range map[string]struct {
		limits map[string]string
		gpu    int
	}{"a": {mig("1g.10gb"), 1}, "b": {memory(10), 0}, "c": {whole(1), 0}} {
		plan, err := b.Reserve(want(t, podOf(uid, tc.limits)), "n00", noon())
		if err != nil || plan[0].Placement[0].GPU.String() != uuid(0, tc.gpu) {
			t.Errorf("%v: %v, %v", tc.limits, plan, err)
		}
		b.Unreserve(uid)
	}
	b = clusterStateOf(2, 1)
	b.Report("n00", switchStatus(0, 1))
	b.Report("n01", migStatus(1, 1))
	for name, limits := range map[string]map[string]string{"instance": mig("1g.10gb"), "large": mig("7g.80gb")} {
		w := want(t, podOf(name, limits))
		if must, need := b.Score(w, "n00", 64000, noon()), b.Score(w, "n01", 64000, noon()); must >= need {
			t.Errorf("%s: %d where a GPU must change, %d where none need", name, must, need)
		}
	}
	b.Report("n00", switchStatus(0, 1))
	b.Report("n01", backStatus(1, 1))
	w := want(t, podOf("share", memory(10)))
	if need, must := b.Score(w, "n00", 64000, noon()), b.Score(w, "n01", 64000, noon()); must >= need {
		t.Errorf("share: %d where a GPU must change, %d where none need", must, need)
	}
}

// A node that could not change a GPU a moment ago and can now has more room, so that who waits is looked at again.
func TestRoomOfAChange(t *testing.T) {
	s := switchStatus(0, 1)
	s.GPUs[0].SwitchableTo = ""
	b := migState(s)
	before := b.Capacity("n00", noon())
	b.Report("n00", switchStatus(0, 1))
	if now := b.Capacity("n00", noon()); !now.More(before) || before.More(now) {
		t.Errorf("%v, then %v", before, now)
	}
}
