// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

// A planned pod is stuck once its node has said for long enough, without a break and believed, that it has no room for
// it.
func TestStuck(t *testing.T) {
	full := gpunode.PendingPod{PodUID: "p", Namespace: "ns", Pod: "p", Reason: "not enough free"}
	type step struct {
		after    time.Duration
		unplaced bool
		do       func(b *scheduler.ClusterState, now time.Time)
		silent   bool
		want     bool
	}
	wait := func(unplaced, want bool) step { return step{after: 30 * time.Second, unplaced: unplaced, want: want} }
	for name, tc := range map[string]struct {
		unplanned bool
		steps     []step
	}{
		"for long enough": {steps: []step{wait(true, false), wait(true, false), wait(true, true),
			wait(true, true)}},
		"room in between": {steps: []step{wait(true, false), wait(true, false), wait(false, false),
			wait(true, false), wait(true, false), wait(true, true)}},
		"never said so": {steps: []step{wait(false, false), wait(false, false), wait(false, false)}},
		"bound by others": {unplanned: true, steps: []step{wait(true, false), wait(true, false),
			wait(true, false)}},
		"not heard from": {steps: []step{wait(true, false), wait(true, false),
			{after: 60 * time.Second, unplaced: true, silent: true}, wait(true, false)}},
		"evicted": {steps: []step{wait(true, false), wait(true, false), wait(true, true),
			{unplaced: true, do: func(b *scheduler.ClusterState, _ time.Time) { b.Evicted("p") }}}},
		"gone in the meantime": {steps: []step{wait(true, false), wait(true, false),
			{after: 30 * time.Second, unplaced: true,
				do: func(b *scheduler.ClusterState, now time.Time) { b.PodRemoved("p", now) }}}},
	} {
		t.Run(name, func(t *testing.T) {
			b, now := clusterStateOf(1, 2), noon()
			p := podOf("p", memory(40))
			p.Node = "n00"
			if !tc.unplanned {
				p.Annotations[sharing.PlacementAnnotation("main")] = uuid(0, 1)
			}
			b.Pod(p, want(t, p), now)
			for i, s := range tc.steps {
				now = now.Add(s.after)
				status := statusOf(0, 2)
				if s.unplaced {
					status.PendingPods = []gpunode.PendingPod{full}
				}
				b.Report("n00", status)
				if !s.silent {
					b.Heartbeat("n00", now, 40*time.Second, now)
				}
				if s.do != nil {
					s.do(b, now)
				}
				var want []scheduler.Stuck
				got := b.Stuck(time.Minute, now)
				if s.want {
					want = []scheduler.Stuck{{UID: "p", Namespace: "ns", Name: "p", Node: "n00",
						For: time.Duration(i) * 30 * time.Second, Reason: "not enough free"}}
					if name == "room in between" {
						want[0].For = time.Minute
					}
				}
				if d := cmp.Diff(want, got); d != "" {
					t.Fatalf("step %d:\n%s", i, d)
				}
			}
		})
	}
}
