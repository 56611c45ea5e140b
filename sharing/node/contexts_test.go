// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf/contextsize"
	"github.com/kerf-gpu/kerf/sharing/node/contextprobe"
	"github.com/kerf-gpu/kerf/sharing/node/gpudriver"
)

// keepsContexts has the agent keep measured sizes, and starts it again.
func (g *guarded) keepsContexts() {
	g.t.Helper()
	g.bench.opt.Contexts = contextprobe.Load(filepath.Join(g.bench.dir, "contexts.json"), slog.New(slog.DiscardHandler))
	g.restartPreloading()
}

// measured is a measurement on the first GPU.
func (g *guarded) measured(size sharing.Bytes) {
	g.t.Helper()
	if err := g.bench.opt.Contexts.Set(contextKind(g.gpus[0], g.bench.driver.Version()), size); err != nil {
		g.t.Fatal(err)
	}
}

// Until a size is measured, an upper bound counts. A measured size counts at once, on all GPUs of its model, and after
// a restart.
func TestTheSizeOfContextsIsKept(t *testing.T) {
	g := newPreloaded(t, preloading)
	g.keepsContexts()
	_, a := g.share(4)
	if u := g.usage(a); u.Context != libkerf.UnknownContext || u.Bound != contextsize.Bound(g.gpus[0].Model) {
		t.Errorf("before it was measured: %+v", u)
	}
	g.measured(sharing.GiB / 2)
	g.bench.upkeep(t.Context())
	if u := g.usage(a); u.Context != sharing.GiB/2 {
		t.Errorf("at once: %+v", u)
	}
	g.keepsContexts()
	if _, b := g.share(2); g.usage(b).Context != sharing.GiB/2 {
		t.Errorf("after a restart: %+v", g.usage(b))
	}
	_, gpus := g.bench.Store.View()
	if size := contextSizes(g.bench.Runtime, gpus)[g.gpus[1].Ref()]; size != (contextsize.Size{Bytes: sharing.GiB / 2,
		Measured: true}) {
		t.Errorf("of another GPU: %+v", size)
	}
}

// Programs change what their own grant sees of contexts, and nothing for anybody else.
func TestNoProgramSetsTheSizeOfContexts(t *testing.T) {
	g := newPreloaded(t, preloading)
	g.keepsContexts()
	p, a := g.share(4)
	_, b := g.share(2)
	before := g.usage(b)
	for slot, lie := range []struct{ held, waiting, used sharing.Bytes }{
		{sharing.GiB, sharing.GiB, 2 * sharing.GiB}, {2 * sharing.GiB, sharing.GiB, sharing.GiB + 1},
	} {
		g.countsWaiting(a, slot, p, lie.held, lie.waiting)
		g.holds(gpudriver.ProcessUse{PID: p.PID, Used: lie.used, Known: true})
		for range 3 {
			g.bench.upkeep(t.Context())
		}
	}
	_, c := g.share(1)
	for name, u := range map[string]libkerf.Usage{"a grant that runs": g.usage(b), "a new grant": g.usage(c)} {
		if u.Context != before.Context || u.Bound != before.Bound || u.Least != 0 {
			t.Errorf("%s: %+v, before %+v", name, u, before)
		}
	}
	if _, err := os.Stat(filepath.Join(g.bench.dir, "contexts.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a size was written: %v", err)
	}
}

// What the first context of a grant took is the least room in which the grant makes another.
func TestTheLeastContextOfAGrant(t *testing.T) {
	g := newPreloaded(t, preloading)
	p, a := g.share(4)
	g.countsWaiting(a, 0, p, sharing.GiB, sharing.GiB)
	g.holds(gpudriver.ProcessUse{PID: p.PID, Used: sharing.GiB / 2, Known: true})
	g.bench.upkeep(t.Context())
	if u := g.usage(a); u.Least != sharing.GiB/2 || u.Overhead != sharing.GiB/2 || u.Used != 0 {
		t.Errorf("%+v", u)
	}
}

// A region that an older agent made keeps its size until one is measured. Its programs may know of no bound.
func TestRegionsOfAnOlderAgent(t *testing.T) {
	g := newPreloaded(t, preloading)
	_, a := g.share(1)
	open, err := libkerf.Open(g.bench.regionOf(string(a.ID)))
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if err := open.SetContext(g.gpus[0].Ref(), 7*sharing.MiB); err != nil {
		t.Fatal(err)
	}
	g.keepsContexts()
	g.bench.upkeep(t.Context())
	if u := g.usage(a); u.Context != 7*sharing.MiB {
		t.Errorf("not measured: %+v", u)
	}
	g.measured(5 * sharing.MiB)
	g.bench.upkeep(t.Context())
	if u := g.usage(a); u.Context != 5*sharing.MiB {
		t.Errorf("measured: %+v", u)
	}
}
