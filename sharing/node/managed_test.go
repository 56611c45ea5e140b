// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/node/gpudriver"
	"github.com/kerf-gpu/kerf/sharing/node/lifecycle"
)

// rejectsManaged is what the programs of a grant find in its region.
func (g *guarded) rejectsManaged(a lifecycle.Activated) bool {
	g.t.Helper()
	open, err := libkerf.Open(g.bench.regionOf(string(a.ID)))
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
	g.bench.apply(g.bench.opt.Config, preloading)
	g.bench.upkeep(t.Context())
	if g.rejectsManaged(a) {
		t.Error("it may not although the new config allows it")
	}
	g.bench.apply(g.bench.opt.Config, pool)
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
		backend sharing.Backend
		want    bool // it leaves managed memory open
		rejects bool // it can reject it
	}{
		{sharing.LevelDriver, sharing.BackendDriver, true, false},
		{sharing.LevelUserspace, sharing.BackendMPS, true, false},
		{sharing.LevelUserspace, sharing.BackendLibkerf, false, true},
		{sharing.LevelReactive, sharing.BackendReactive, true, false},
		{sharing.LevelReactive, sharing.BackendLibkerf, true, false}, // a program came past the library
		{sharing.LevelNone, sharing.BackendNone, false, false},
		{sharing.LevelUnknown, sharing.BackendDriver, false, true}, // of what is not known nothing is said
		{sharing.LevelHardware, sharing.BackendNone, false, true},
		{sharing.LevelExclusive, sharing.BackendNone, false, true},
	} {
		for _, rule := range []config.ManagedMemory{config.ManagedAllow, config.ManagedReject} {
			got := rule.CaveatAt(tt.level, tt.backend)
			if strings.Contains(got, open) != tt.want ||
				strings.Contains(got, useless) != (rule == config.ManagedReject && !tt.rejects) {
				t.Errorf("%v by %v, %v: %q", tt.level, tt.backend, rule, got)
			}
		}
	}
}

func TestManagedMemoryInAGrantsReason(t *testing.T) {
	b := newBench(t)
	b.start()
	b.activate(b.tenant(), "", gib(4))
	s := b.State(t.Context()).Grants[0]
	if s.Level != sharing.LevelDriver ||
		!strings.Contains(s.LevelReason, "driver's limit does not count managed memory") {
		t.Errorf("level %v, %q", s.Level, s.LevelReason)
	}
}

// managedOf says that a part of what a slot counts of the first GPU is managed memory, as the library would.
func (g *guarded) managedOf(a lifecycle.Activated, slot int, n sharing.Bytes) {
	g.t.Helper()
	f, err := os.OpenFile(filepath.Join(g.bench.regionOf(string(a.ID)), libkerf.UsageFileName), os.O_RDWR, 0)
	if err != nil {
		g.t.Fatal(err)
	}
	defer f.Close()
	word := binary.LittleEndian.AppendUint64(nil, uint64(n))
	if _, err := f.WriteAt(word, int64(firstSlot+libkerf.MaxProcesses*slotSize+slot*libkerf.MaxDevices*8)); err != nil {
		g.t.Fatal(err)
	}
}

// Managed memory that libkerf has charged is attributed, up to the grant's cap: what a program writes to its counters
// hides no more. It does not hide what the driver holds for a process beyond its count, either.
func TestManagedMemoryOfLibkerfIsAttributed(t *testing.T) {
	g := newPreloaded(t, preloading)
	p, a := g.share(4)
	gpu := a.Own[0].Ref()
	g.counts(a, 0, p, 3*sharing.GiB)
	g.managedOf(a, 0, 2*sharing.GiB)
	look := func(unlisted sharing.Bytes) string {
		g.bench.driver.put(gpu, []gpudriver.ProcessUse{{PID: p.PID, Used: 3 * sharing.GiB / 2, Known: true}})
		g.bench.driver.nobodys = map[sharing.GPURef]sharing.Bytes{gpu: unlisted}
		g.bench.unlistedTold()
		return g.bench.unlistedTold()
	}
	if got := look(2 * sharing.GiB); got != "" {
		t.Errorf("all of it is charged: %q", got)
	}
	if got := look(3 * sharing.GiB); !strings.Contains(got, "has 1GiB of unattributed memory") {
		t.Errorf("with 1 GiB that is not: %q", got)
	}
	g.bench.upkeep(t.Context())
	if u := g.usage(a); u.Overhead != sharing.GiB/2 {
		t.Errorf("overhead %v, want what is listed beyond 1GiB", u.Overhead)
	}
	g.counts(a, 1, p, 96*sharing.GiB)
	g.managedOf(a, 1, 99*sharing.GiB)
	g.writesLimit(a, 96*sharing.GiB)
	if got := look(6 * sharing.GiB); !strings.Contains(got, "has 2GiB of unattributed memory") {
		t.Errorf("where counters and limit are past the cap: %q", got)
	}
}

// writesLimit writes to the page of limits, as a program does that has mounted it to be writable.
func (g *guarded) writesLimit(a lifecycle.Activated, limit sharing.Bytes) {
	g.t.Helper()
	open, err := libkerf.Open(g.bench.regionOf(string(a.ID)))
	if err != nil {
		g.t.Fatal(err)
	}
	defer open.Close()
	if err := open.SetLimit(a.Own[0].Ref(), limit); err != nil {
		g.t.Fatal(err)
	}
}
