// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/choice"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/node/record"
)

// A profile's list replaces the pool's, for what is promised, given and refused.
func TestBackendsOfAProfile(t *testing.T) {
	conf, err := config.New(config.Spec{
		Pools: []config.Pool{{Name: "a", Backends: []sharing.Backend{sharing.BackendDriver},
			MinLevel: sharing.LevelNone}},
		Profiles: []config.Profile{
			{Name: "watched", Memory: sharing.GiB, Backends: []sharing.Backend{sharing.BackendDriver,
				sharing.BackendReactive}},
			{Name: "demanding", Memory: sharing.GiB, MinLevel: sharing.LevelReactive},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	pool, err := conf.PoolFor(nil)
	if err != nil {
		t.Fatal(err)
	}
	g := newGuarded(t, pool)
	g.bench.apply(conf, pool)
	g.activate(g.tenant(), "watched", sharing.Request{Profile: "watched"})
	bare := gib(1)
	bare.MinLevel = sharing.LevelNone
	g.activate(g.tenant(), "plain", bare)
	for _, s := range g.bench.State(t.Context()).Grants {
		want := map[string]sharing.Backend{"watched": sharing.BackendReactive,
			"plain": sharing.BackendNone}[s.Name]
		if s.Backend != want || s.Level != want.Level() {
			t.Errorf("%s is held by %v, level %v", s.Name, s.Backend, s.Level)
		}
	}
	if _, err := g.bench.Reserve(t.Context(), g.tenant().Peer, "",
		sharing.Request{Profile: "demanding"}); !errors.Is(err,
		sharing.ErrUnsupported) {
		t.Errorf("more than the pool's list gives: %v", err)
	}
	for _, b := range g.bench.State(t.Context()).GPUs[0].Backends {
		if b.Listed != (b.Backend == sharing.BackendDriver) ||
			b.Support.OK() != (b.Backend == sharing.BackendReactive) {
			t.Errorf("%+v", b)
		}
	}
}

// Each GPU of a placement may have a backend that satisfies the demand, and both together none.
func TestAPlacementHasOneBackend(t *testing.T) {
	g := newGuarded(t, warning)
	yes := choice.Support{Answer: choice.Supported}
	for i, gpu := range g.gpus {
		rep := choice.Report{sharing.BackendDriver: yes}
		if i > 0 {
			rep = choice.Report{sharing.BackendReactive: yes}
		}
		g.bench.SetLevel(gpu.Ref(), rep)
	}
	req := gib(2)
	req.GPUs, req.UUIDs, req.MinLevel = 2, []sharing.GPUID{g.gpus[0].UUID, g.gpus[1].UUID}, sharing.LevelReactive
	if _, err := g.bench.Reserve(t.Context(), g.tenant().Peer, "", req); !errors.Is(err, sharing.ErrUnsupported) ||
		!strings.Contains(err.Error(), "together") {
		t.Errorf("%v", err)
	}
	g.bench.SetLevel(g.gpus[0].Ref(), choice.Report{sharing.BackendDriver: yes, sharing.BackendReactive: yes})
	g.activate(g.tenant(), "", req)
	if s := g.shown(); s.Backend != sharing.BackendReactive || !strings.Contains(s.LevelReason, "driver: GPU 1: ") {
		t.Errorf("held by %v: %q", s.Backend, s.LevelReason)
	}
}

// The backend is on record; of a record that has none it is the one that gave the level.
func TestBackendIsOnRecord(t *testing.T) {
	g := newGuarded(t, warning)
	g.share(2)
	for _, spoil := range []func(*record.Grant){func(*record.Grant) {}, func(r *record.Grant) { r.Backend = "" }} {
		data, err := os.ReadFile(g.bench.opt.RecordPath)
		if err != nil {
			t.Fatal(err)
		}
		rec, err := record.Decode(data)
		if err != nil || len(rec.Grants) != 1 || rec.Grants[0].Backend != "reactive" {
			t.Fatalf("%+v %v", rec, err)
		}
		spoil(&rec.Grants[0])
		if data, err = record.Encode(rec); err == nil {
			err = os.WriteFile(g.bench.opt.RecordPath, data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		g.restartAgent()
		if s := g.shown(); s.Backend != sharing.BackendReactive {
			t.Errorf("after a restart held by %v", s.Backend)
		}
	}
}
