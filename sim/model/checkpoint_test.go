// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"testing"

	"github.com/kerf-gpu/kerf/sim/machine"
	"github.com/kerf-gpu/kerf/sim/wire"
)

// A process goes to the host's memory and comes back, where there is room again, and can do nothing meanwhile.
func TestCheckpoint(t *testing.T) {
	m := testMachine(t, "h100x8", machine.Dmem)
	if err := m.SetLimit(0, true, inA, 0, 10*gib); err != nil {
		t.Fatal(err)
	}
	p := open(t, m, 0, 100, inA)
	if _, err := m.Alloc(p.id, 6*gib, p.ctx, wire.KindLinear, inA); err != nil {
		t.Fatal(err)
	}
	used := func() uint64 {
		t.Helper()
		l, err := m.GetLimit(0, inA)
		if err != nil {
			t.Fatal(err)
		}
		return uint64(l.Used)
	}
	all := used()
	step := func(s wire.Checkpoint, want ProcessState, wantErr error) {
		t.Helper()
		got, err := m.Checkpoint(0, 100, s, inA)
		if got != want || !errors.Is(err, wantErr) {
			t.Errorf("step %d: state %d, %v, want %d, %v", s, got, err, want, wantErr)
		}
	}
	listed := func(want int) {
		t.Helper()
		if l, err := m.Processes(0); err != nil || len(l) != want {
			t.Errorf("%d processes listed, %v, want %d", len(l), err, want)
		}
	}
	step(wire.CheckpointState, Running, nil)
	step(wire.CheckpointSave, Running, wire.InUse)
	step(wire.CheckpointLock, Stopped, nil)
	listed(1)
	if _, err := m.Alloc(p.id, mib, p.ctx, wire.KindLinear, inA); !errors.Is(err, wire.Locked) {
		t.Errorf("a call of a locked process: %v", err)
	}
	step(wire.CheckpointSave, Saved, nil)
	listed(0)
	if used() != 0 {
		t.Errorf("%d bytes are charged while it is away", used())
	}
	other := open(t, m, 0, 101, inA)
	at, err := m.Alloc(other.id, 5*gib, other.ctx, wire.KindLinear, inA)
	if err != nil {
		t.Fatal(err)
	}
	withOthers := used()
	step(wire.CheckpointRestore, Saved, wire.OutOfMemory)
	if used() != withOthers {
		t.Errorf("%d bytes are charged after it did not come back, want %d", used(), withOthers)
	}
	if err := m.Free(other.id, at); err != nil {
		t.Fatal(err)
	}
	m.Close(other.id, 0)
	step(wire.CheckpointRestore, Stopped, nil)
	step(wire.CheckpointUnlock, Running, nil)
	listed(1)
	if used() != all {
		t.Errorf("%d bytes are charged afterwards, want %d", used(), all)
	}
	step(7, 0, wire.Invalid)
	step(wire.CheckpointLock, Stopped, nil)
	step(wire.CheckpointSave, Saved, nil)
	m.Close(p.id, 0)
	if used() != 0 {
		t.Errorf("%d bytes are left", used())
	}
	if _, err := m.Checkpoint(0, 100, wire.CheckpointState, nil); !errors.Is(err, wire.NotFound) {
		t.Errorf("of a process that is gone: %v", err)
	}
}
