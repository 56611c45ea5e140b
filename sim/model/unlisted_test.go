// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/machine"
	"github.com/kerf-gpu/kerf/sim/wire"
)

// What the driver needs for itself per context is in use. No process list, limit or peak counts it, and it ends with
// the context.
func TestUnlistedMemoryOfContexts(t *testing.T) {
	const extra = 8 * mib
	m := testMachine(t, "h100x8", machine.Dmem)
	before := open(t, m, 0, 1, inA)
	if err := m.Apply([]int{0}, Change{Costs: CostChange{Unlisted: new(extra)}}, 0); err != nil {
		t.Fatal(err)
	}
	context := m.gpus[0].hw.Model.Context
	after := open(t, m, 0, 2, inA)
	mem, err := m.Memory(0, nil)
	if err != nil || mem.Used != 2*context+extra {
		t.Errorf("%s in use, want two contexts and %s: %v", mem.Used, extra, err)
	}
	list, err := m.Processes(0)
	if err != nil || len(list) != 2 || list[0].Bytes != context || list[1].Bytes != context {
		t.Errorf("%+v %v", list, err)
	}
	if peak := m.gpus[0].peak; peak != 2*context {
		t.Errorf("peak %s", peak)
	}
	for _, p := range []process{after, before} {
		if err := m.DestroyContext(p.id, p.ctx); err != nil {
			t.Fatal(err)
		}
	}
	if mem, err := m.Memory(0, nil); err != nil || mem.Used != 0 || m.gpus[0].unlisted != 0 {
		t.Errorf("%s in use afterwards: %v", mem.Used, err)
	}
}

// If the driver's own memory for a context does not fit, the context is not created, and leaves nothing.
func TestNoRoomForUnlistedMemory(t *testing.T) {
	m := testMachine(t, "h100x8", machine.Dmem)
	p := open(t, m, 0, 1, inA)
	free := m.gpus[0].free()
	if _, err := m.Alloc(p.id, free-m.gpus[0].hw.Model.Context-mib, p.ctx, wire.KindLinear, inA); err != nil {
		t.Fatal(err)
	}
	if err := m.Apply([]int{0}, Change{Costs: CostChange{Unlisted: new(2 * mib)}}, 0); err != nil {
		t.Fatal(err)
	}
	used := m.gpus[0].inUse()
	if _, err := m.CreateContext(p.id, 0, inA); !errors.Is(err, wire.OutOfMemory) || m.gpus[0].inUse() != used {
		t.Errorf("%v, %s in use, %s before", err, m.gpus[0].inUse(), used)
	}
}

func TestCostsOutOfRange(t *testing.T) {
	m := testMachine(t, "h100x8", machine.Dmem)
	for _, c := range []CostChange{
		{Unlisted: new(MaxCost + 1)}, {Stream: new(MaxCost + 1)}, {Context: new(MaxCostTime + 1)},
		{List: new(-time.Nanosecond)}, {Exit: new(MaxCostTime + 1)},
	} {
		if err := m.Apply([]int{0}, Change{Costs: c}, 0); !errors.Is(err, sharing.ErrInvalid) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
