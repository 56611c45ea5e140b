// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/machine"
	"github.com/kerf-gpu/kerf/sim/wire"
)

func TestFaultsStickToTheirProcess(t *testing.T) {
	for xid, want := range map[uint64]error{13: wire.FailedLaunch, 31: wire.BadAddress, 43: wire.FailedLaunch} {
		m := testMachine(t, "t4x4", machine.Dmem)
		p, q := open(t, m, 0, 100, nil), open(t, m, 0, 101, nil)
		at := p.alloc(mib, nil, nil)
		cursor := m.Now()
		wantErr(t, m.Apply([]int{0}, Change{Faults: map[int]uint64{100: xid}}, sec), nil)
		for range 2 {
			_, err := m.Launch(p.id, p.ctx, 1, 1, 0, sec)
			wantErr(t, err, want)
			_, err = m.Clock(p.id, 0, sec)
			wantErr(t, err, want)
			wantErr(t, m.Free(p.id, at), want)
		}
		q.alloc(mib, nil, nil)
		if ev, _, ok := m.Next(cursor, ^uint64(0), ^uint64(0)); !ok || ev.Data != xid || ev.GPU != 0 {
			t.Errorf("event %+v, %v", ev, ok)
		}
		m.Close(p.id, sec)
		open(t, m, 0, 100, nil).alloc(mib, nil, nil)
	}
}

// A fault of one client is one of all clients of its server, and not of the server or others. The server takes no new
// client until all of them have exited.
func TestFaultsOfMPSClients(t *testing.T) {
	m := testMachine(t, "h100x8", machine.Misc)
	_, clients := mpsOn(t, m, 2, NoLimit, 100)
	other := open(t, m, 0, 99, nil)
	wantErr(t, m.Apply([]int{0}, Change{Faults: map[int]uint64{10: 31}}, sec), nil)
	for _, id := range clients {
		_, err := m.CreateContext(id, 0, nil)
		wantErr(t, err, wire.BadAddress)
	}
	other.alloc(mib, nil, nil)

	late, err := m.Open(0, 50)
	wantErr(t, err, nil)
	for _, id := range clients {
		wantErr(t, m.ServerState(1), wire.NotReady)
		wantErr(t, m.AddMPSClient(late, 1, NoLimit, 100), wire.NotReady)
		m.Close(id, sec)
	}
	wantErr(t, m.ServerState(1), nil)
	wantErr(t, m.AddMPSClient(late, 1, NoLimit, 100), nil)
}

func TestFaultsRefused(t *testing.T) {
	m := testMachine(t, "t4x4", machine.Dmem)
	open(t, m, 0, 100, nil)
	for name, faults := range map[string]map[int]uint64{"no process": {7: 31}, "an XID of the GPU": {100: 79}} {
		if err := m.Apply([]int{0}, Change{Faults: faults}, 0); !errors.Is(err, sharing.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
