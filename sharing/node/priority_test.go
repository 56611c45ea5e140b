// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf/compute"
	"github.com/kerf-gpu/kerf/sharing/config"
)

// newPreloadedPods is a node for pods whose grants the preloaded library holds.
func newPreloadedPods(t *testing.T, pool config.Pool) *guarded {
	t.Helper()
	b, s := newPodBench(t), &seen{}
	b.opt.Observer, b.opt.Pool = s, pool
	b.preloads()
	g := &guarded{bench: b, seen: s}
	g.restartPreloading()
	return g
}

// priorities are the classes that the pacer received, by pod.
func (g *guarded) priorities() map[string]int {
	g.t.Helper()
	_, attachments := g.bench.pacing().Attachments()
	by := map[compute.ID]int{}
	for _, l := range attachments {
		by[l.Grant.ID] = l.Grant.Priority
	}
	out := map[string]int{}
	for _, s := range g.bench.State(g.t.Context()).Grants {
		out[s.Owner.PodName] = by[compute.ID(s.ID)]
		if int(s.Compute.Priority) != by[compute.ID(s.ID)] {
			g.t.Errorf("%s: shown as %+v, paced by %d", s.Owner.PodName, s.Compute, by[compute.ID(s.ID)])
		}
	}
	return out
}

// Idle time goes by the class of the pod, also after a restart, or by that of the profile in the current config.
func TestPriorityOfTime(t *testing.T) {
	g := newPreloadedPods(t, preloading)
	profile := config.Profile{Name: "urgent", Memory: 2 * sharing.GiB, Percent: 10, Priority: 70}
	said := func(p config.Profile) {
		t.Helper()
		c, err := config.New(config.Spec{Pools: []config.Pool{preloading}, Profiles: []config.Profile{p}})
		if err != nil {
			t.Fatal(err)
		}
		g.bench.opt.Config = c
		g.bench.apply(c, preloading)
	}
	said(profile)
	var all []*container
	for pod, class := range map[string]int32{"high": 1000, "low": -5, "none": 0, "profiled": 1000, "late": 0} {
		ask := g.app(pod, "gpu-memory-gib:2", "gpu-percent:10")
		ask.Request.UUIDs, ask.Priority = []sharing.GPUID{g.gpus[0].UUID}, class
		if pod == "profiled" {
			ask.Request.Profile = "urgent"
		}
		all = append(all, g.run(ask))
		if pod == "late" { // its pod was not known when its grant was made
			ask.Priority = 300
			if err := g.bench.ReservePod(t.Context(), []sharing.ContainerRequest{ask}); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := map[string]int{"high": 1000, "low": -5, "none": 0, "profiled": 70, "late": 300}
	if d := cmp.Diff(want, g.priorities()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	profile.Priority = 0
	said(profile)
	want["profiled"] = 1000
	if d := cmp.Diff(want, g.priorities()); d != "" {
		t.Errorf("a profile that leaves it to the pod (-want +got):\n%s", d)
	}
	if err := g.bench.Store.Save(); err != nil {
		t.Fatal(err)
	}
	g.restartPreloading()
	if d := cmp.Diff(want, g.priorities()); d != "" {
		t.Errorf("after a restart (-want +got):\n%s", d)
	}
	for _, c := range all {
		c.remove()
	}
}
