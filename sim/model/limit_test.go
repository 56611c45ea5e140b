// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/machine"
	"github.com/kerf-gpu/kerf/sim/wire"
)

func TestSetLimitRefuses(t *testing.T) {
	tests := map[string]struct {
		machine, driver string
		gpu             int
		root            bool
		chain           Chain
		soft, hard      sharing.Bytes
		want            error
	}{
		"older driver":     {"t4x4", "r580", 0, true, inA, 0, gib, wire.NotSupported},
		"not root":         {"t4x4", "r615", 0, false, inA, 0, gib, wire.NoPermission},
		"mig mode":         {"mixed", "r615", 1, true, inA, 0, gib, wire.NotSupported},
		"root group":       {"t4x4", "r615", 0, true, nil, 0, gib, wire.NotSupported},
		"hard above total": {"t4x4", "r615", 0, true, inA, 0, 15360*mib + 1, wire.Invalid},
		"soft above total": {"t4x4", "r615", 0, true, inA, 15360*mib + 1, NoLimit, wire.Invalid},
		"no memory":        {"t4x4", "r615", 0, true, inA, 0, 0, wire.Invalid},
		"soft above hard":  {"t4x4", "r615", 0, true, inA, 2 * gib, gib, wire.Invalid},
		"no such gpu":      {"t4x4", "r615", 4, true, inA, 0, gib, wire.Invalid},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			mach, err := machine.Load(tt.machine)
			if err != nil {
				t.Fatal(err)
			}
			m := New(mach, testDriver(t, tt.driver))
			wantErr(t, m.SetLimit(tt.gpu, tt.root, tt.chain, tt.soft, tt.hard), tt.want)
			if l := m.Limits(); len(l) != 0 {
				t.Errorf("a refused call left %v", l)
			}
		})
	}
}

func TestMiscChargesTheNearestLimit(t *testing.T) {
	m := testMachine(t, "h100x8", machine.Misc)
	setLimit(t, m, inA, 2*gib)
	setLimit(t, m, inC, 10*gib)
	p := open(t, m, 0, 100, inC)
	p.alloc(9*gib, inC, nil) // past a's limit, which does not count
	p.alloc(gib, inC, wire.OutOfMemory)
	q := open(t, m, 0, 101, inB)
	q.alloc(gib, inB, nil) // b has no limit: a's counts
	q.alloc(gib, inB, wire.OutOfMemory)
	wantErr(t, m.SetLimit(0, true, inC, 0, 9*gib), wire.InvalidLimit)
	if l, err := m.GetLimit(0, inC); err != nil || l.Hard != 10*gib || l.Used != 9*gib+500*mib {
		t.Errorf("c: %+v, %v", l, err)
	}
	if l, err := m.GetLimit(0, inB); err != nil || l.Group != inA[0] || l.Used != gib+500*mib {
		t.Errorf("b: %+v, %v", l, err)
	}
}

// With Misc a cleared limit stays, as one that never refuses: also where there was none, it keeps the one above from
// counting.
func TestMiscClearedLimitHidesThoseAbove(t *testing.T) {
	m := testMachine(t, "h100x8", machine.Misc)
	_, err := m.GetLimit(0, inB)
	wantErr(t, err, wire.NotFound)
	setLimit(t, m, inA, 2*gib)
	p := open(t, m, 0, 100, inB)
	p.alloc(2*gib, inB, wire.OutOfMemory)
	wantErr(t, m.SetLimit(0, true, inB, 0, NoLimit), nil)
	p.alloc(2*gib, inB, nil)
	if l, err := m.GetLimit(0, inB); err != nil || l.Hard != NoLimit || l.Soft != 0 || l.Used != 2*gib {
		t.Errorf("%+v, %v", l, err)
	}
	if d := cmp.Diff([]Limit{{GPU: 0, Group: inA[0], Hard: 2 * gib, Used: 500 * mib}}, m.Limits()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	wantErr(t, m.SetLimit(0, true, inB, 0, gib), wire.InvalidLimit) // what was charged meanwhile counts
}

// With Dmem a limit applies to its own group alone.
func TestDmemLimitIsOfItsGroup(t *testing.T) {
	m := testMachine(t, "h100x8", machine.Dmem)
	setLimit(t, m, inA, 2*gib)
	_, err := m.GetLimit(0, inB)
	wantErr(t, err, wire.NotFound)
	wantErr(t, m.SetLimit(0, true, inB, 0, NoLimit), nil)
	_, err = m.GetLimit(0, inB)
	wantErr(t, err, wire.NotFound)
	p := open(t, m, 0, 100, inB)
	p.alloc(2*gib, inB, wire.OutOfMemory)
}

func TestDmemChargesAllLimits(t *testing.T) {
	m := testMachine(t, "h100x8", machine.Dmem)
	setLimit(t, m, inA, 3*gib)
	setLimit(t, m, inC, 10*gib)
	p := open(t, m, 0, 100, inC)
	p.alloc(2*gib, inC, nil)
	p.alloc(gib, inC, wire.OutOfMemory) // a's room is used up
	if l, _ := m.GetLimit(0, inC); l.Used != 2*gib+500*mib {
		t.Errorf("a refused allocation was charged: %+v", l)
	}
	wantErr(t, m.SetLimit(0, true, inC, 0, gib), nil) // below use is taken
	p.alloc(mib, inC, wire.OutOfMemory)
	mem, err := m.Memory(0, inC)
	if err != nil || mem != (Memory{Total: gib, Used: gib}) {
		t.Errorf("%+v, %v", mem, err)
	}
	m.Close(p.id, 0)
	for _, l := range m.Limits() {
		if l.Used != 0 {
			t.Errorf("%+v is charged after the end", l)
		}
	}
}

func TestWhatWasAllocatedBeforeIsNotCharged(t *testing.T) {
	m := testMachine(t, "h100x8", machine.Dmem)
	p := open(t, m, 0, 100, inC)
	before := p.alloc(20*gib, inC, nil)
	setLimit(t, m, inC, 2*gib)
	after := p.alloc(gib, inC, nil)
	if l, _ := m.GetLimit(0, inC); l.Used != gib {
		t.Errorf("charged %d", l.Used)
	}
	wantErr(t, m.SetLimit(0, true, inC, 0, NoLimit), nil)
	_, err := m.GetLimit(0, inC)
	wantErr(t, err, wire.NotFound)
	setLimit(t, m, inC, 2*gib)
	wantErr(t, m.Free(p.id, before), nil)
	wantErr(t, m.Free(p.id, after), nil)
	if l, _ := m.GetLimit(0, inC); l.Used != 0 || l.Hard != 2*gib {
		t.Errorf("after clearing and setting again: %+v", l)
	}
}

func TestForgottenGroupHasNoLimit(t *testing.T) {
	m := testMachine(t, "t4x4", machine.Dmem)
	setLimit(t, m, inC, gib)
	setLimit(t, m, inA, 2*gib)
	m.ForgetGroup(inC[0].ID)
	if d := cmp.Diff([]Limit{{GPU: 0, Group: inA[0], Hard: 2 * gib}}, m.Limits()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestMemoryAsTheCallerSeesIt(t *testing.T) {
	m := testMachine(t, "h100x8", machine.Dmem)
	whole := Memory{Total: 81559 * mib, Reserved: 550 * mib, Free: (81559 - 550) * mib}
	usable := whole.Free
	check := func(what string, chain Chain, want Memory) {
		t.Helper()
		got, err := m.Memory(0, chain)
		if err != nil || got != want {
			t.Errorf("%s: got %+v, %v, want %+v", what, got, err, want)
		}
		if got.Total != got.Reserved+got.Free+got.Used {
			t.Errorf("%s: %+v does not add up", what, got)
		}
	}
	check("no limit", inC, whole)
	setLimit(t, m, inA, 30*gib)
	check("limit above the caller's group", inC, whole)
	check("limit on the caller's group", inA, Memory{Total: 30 * gib, Free: 30 * gib})
	check("another group", inD, whole)
	check("root", nil, whole)
	setLimit(t, m, inD, usable+1)
	check("limit past the GPU", inD, whole)
	setLimit(t, m, inD, usable)
	check("limit of all that is usable", inD, Memory{Total: usable, Free: usable})

	p := open(t, m, 0, 100, inA)
	p.alloc(10*gib, inA, nil)
	used := 10*gib + 500*mib
	check("use under the limit", inA, Memory{Total: 30 * gib, Used: used, Free: 30*gib - used})
	check("use from outside", nil, Memory{Total: whole.Total, Reserved: whole.Reserved, Used: used,
		Free: whole.Free - used})
	q := open(t, m, 0, 101, nil)
	q.alloc(60*gib, nil, nil)
	left := usable - used - 60*gib - 500*mib
	check("others have taken the room", inA, Memory{Total: 30 * gib, Used: 30*gib - left, Free: left})
}
