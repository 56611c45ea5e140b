// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/node/gpudriver"
)

// What the library holds changes live, never below what the driver says is held, and stays over a restart.
func TestLimitOfAAttachmentOfTheLibrary(t *testing.T) {
	g := newPreloaded(t, preloading)
	p, a := g.share(4)
	limit := func(want sharing.Bytes) {
		t.Helper()
		if u := g.usage(a); u.Limit != want*sharing.GiB {
			t.Errorf("the enforced cap is %s, want %dGiB", u.Limit, want)
		}
	}
	for _, to := range []sharing.Bytes{12, 3} {
		if err := g.bench.Limit(t.Context(), as(root), a.ID, to*sharing.GiB); err != nil {
			t.Fatal(err)
		}
		limit(to)
	}
	g.holds(gibs(p, 2))
	refused(t, g.bench.Limit(t.Context(), as(root), a.ID, sharing.GiB), sharing.ErrConflict, "hold 2GiB")
	limit(3)
	g.holds(gpudriver.ProcessUse{PID: p.PID})
	refused(t, g.bench.Limit(t.Context(), as(root), a.ID, sharing.GiB), sharing.ErrUnavailable, "does not tell")
	limit(3)
	g.holds(gibs(p, 2))
	for i, point := range []string{"limit-after-book", "limit-after-cap"} {
		want := sharing.Bytes(7 + i)
		if !g.crashes(point, func() { _ = g.bench.Limit(t.Context(), as(root), a.ID, want*sharing.GiB) }) {
			t.Errorf("failpoint %s was not met", point)
		}
		g.restartPreloading()
		limit(want)
		if got := g.shown().Placement[0].Memory; got != want*sharing.GiB {
			t.Errorf("killed at %s: booked %s, want %dGiB", point, got, want)
		}
	}
}

// A grant of backend libkerf may burst. After a restart its burst memory is in the region.
func TestABurstOfTheLibrary(t *testing.T) {
	pool := preloading
	conf, err := config.New(config.Spec{
		Pools: []config.Pool{pool},
		Profiles: []config.Profile{{Name: "burst", Memory: 30 * sharing.GiB,
			Burst: sharing.Burst{Memory: 40 * sharing.GiB}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	g := newPreloaded(t, pool)
	g.bench.opt.Config = conf
	g.restartPreloading()
	p := g.tenant()
	a := g.activate(p, "", g.bursting(10))
	g.bench.loans.Balance(t.Context())
	g.holds(gibs(p, 15))
	late := g.activate(g.tenant(), "", g.plainly(60))
	for range 2 {
		if u := g.usage(a); u.Limit != 19*sharing.GiB {
			t.Errorf("the enforced cap is %s, want 19GiB", u.Limit)
		}
		if v := g.bench.State(t.Context()).GPUs[0]; v.Burst != 9*sharing.GiB || v.Granted != 70*sharing.GiB {
			t.Errorf("granted %s, burst %s", v.Granted, v.Burst)
		}
		g.restartPreloading()
	}
	if u := g.usage(late); u.Limit != 60*sharing.GiB {
		t.Errorf("its neighbour has %s", u.Limit)
	}
}
