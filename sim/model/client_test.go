// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"testing"

	"github.com/kerf-gpu/kerf/sim/machine"
	"github.com/kerf-gpu/kerf/sim/wire"
)

// TestEnd has a process end while another one has its descriptor, and its number be given again.
func TestEnd(t *testing.T) {
	m := testMachine(t, "h100x8", machine.Misc)
	old := open(t, m, 0, 7, nil)
	at := old.alloc(gib, nil, nil)
	wantErr(t, m.Serve(old.id), nil)
	context := m.gpus[0].hw.Model.Context
	m.End(old.id)
	m.End(12345) // no client

	list := func() []Process {
		all, err := m.Listed(0, wire.ListCompute)
		wantErr(t, err, nil)
		return Sum(all, func(u Use) int { return u.PID })
	}
	if got := list(); len(got) != 1 || got[0].PID != 7 || got[0].Bytes != gib+context {
		t.Errorf("after the end: %+v", got)
	}
	next := open(t, m, 0, 7, nil)
	if got := list(); len(got) != 1 || got[0].Bytes != gib+2*context {
		t.Errorf("with a successor: %+v", got)
	}
	uses, err := m.Uses(0)
	wantErr(t, err, nil)
	if len(uses) != 2 || uses[0].Client != old.id || uses[0].Bytes != gib+context || uses[1].Client != next.id ||
		uses[1].Bytes != context {
		t.Errorf("each for itself: %+v", uses)
	}
	if got := Sum(uses, func(u Use) int { return int(u.Client-old.id) * 9 }); len(got) != 1 ||
		got[0] != (Process{PID: int(next.id-old.id) * 9, Bytes: context, GI: wire.NoInstance, CI: wire.NoInstance}) {
		t.Errorf("without the first: %+v", got)
	}

	// A call that names a process means the one that lives.
	state, err := m.Checkpoint(0, 7, wire.CheckpointLock, nil)
	wantErr(t, err, nil)
	if state != Stopped || m.clients[old.id].state != Running || m.clients[next.id].state != Stopped {
		t.Error("the process that has ended was locked")
	}
	client, err := m.Open(0, 8)
	wantErr(t, err, nil)
	wantErr(t, m.AddMPSClient(client, 7, NoLimit, 100), wire.NotFound)
	file, err := m.Open(0, 7)
	wantErr(t, err, nil)
	wantErr(t, m.Export(file, at), wire.NotFound)

	m.Close(old.id, 0)
	if got := list(); len(got) != 1 || got[0].Bytes != context {
		t.Errorf("after the last descriptor: %+v", got)
	}
}
