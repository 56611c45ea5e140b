// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
)

// rejectsManaged is what the programs of a grant find in its region.
func (g *guarded) rejectsManaged(a Armed) bool {
	g.t.Helper()
	open, err := libkerf.Open(filepath.Join(g.bench.opt.Client.Dir, string(a.ID)))
	if err != nil {
		g.t.Fatal(err)
	}
	defer open.Close()
	return open.RejectsManaged()
}

// The rule is in the region before the first program starts, follows a new config, and survives the agent.
func TestManagedMemoryIsRejectedByThePoolsRule(t *testing.T) {
	pool := preloading
	pool.ManagedMemory = config.ManagedReject
	g := newPreloaded(t, pool)
	_, a := g.part(0)
	if !g.rejectsManaged(a) {
		t.Error("a new grant may allocate managed memory")
	}
	g.restartPreloading()
	if !g.rejectsManaged(a) {
		t.Error("after a restart of the agent it may")
	}
	g.bench.SetConfig(g.bench.opt.Config, preloading, ConfigSource{})
	g.bench.upkeep(t.Context())
	if g.rejectsManaged(a) {
		t.Error("it may not although the new config allows it")
	}
	g.bench.SetConfig(g.bench.opt.Config, pool, ConfigSource{})
	g.bench.upkeep(t.Context())
	if !g.rejectsManaged(a) {
		t.Error("it may although the new config rejects it")
	}
}

// What the level leaves open is part of its reason, by what enforces the grant now.
func TestManagedMemoryInTheLevelsReason(t *testing.T) {
	const open, useless = "in no process", "reject has no effect"
	for _, tt := range []struct {
		level   sharing.Level
		backend config.Backend
		want    bool // it leaves managed memory open
		rejects bool // it can reject it
	}{
		{sharing.LevelDriver, config.BackendDriver, true, false},
		{sharing.LevelClient, config.BackendMPS, true, false},
		{sharing.LevelClient, config.BackendLibkerf, false, true},
		{sharing.LevelReactive, config.BackendReactive, true, false},
		{sharing.LevelReactive, config.BackendLibkerf, true, false}, // a program came past the library
		{sharing.LevelNone, config.BackendNone, false, false},
		{sharing.LevelUnknown, config.BackendDriver, false, true}, // of what is not known nothing is said
		{sharing.LevelHardware, config.BackendNone, false, true},
		{sharing.LevelExclusive, config.BackendNone, false, true},
	} {
		for _, rule := range []config.ManagedMemory{config.ManagedAllow, config.ManagedReject} {
			got := managedCaveat(rule, tt.level, tt.backend)
			if strings.Contains(got, open) != tt.want || strings.Contains(got, useless) != (rule == config.ManagedReject && !tt.rejects) {
				t.Errorf("%v by %v, %v: %q", tt.level, tt.backend, rule, got)
			}
		}
	}
}

func TestManagedMemoryInAGrantsReason(t *testing.T) {
	b := newBench(t)
	b.start()
	b.lease(b.tenant(), "", gib(4))
	s := b.State(t.Context()).Grants[0]
	if s.Level != sharing.LevelDriver || !strings.Contains(s.LevelReason, "driver's limit does not count managed memory") {
		t.Errorf("level %v, %q", s.Level, s.LevelReason)
	}
}
