// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/machine"
	"github.com/kerf-gpu/kerf/sim/wire"
)

// mpsOn makes a server of process 1 on a GPU and n clients, from process 10 on, with a limit and a share.
func mpsOn(t *testing.T, m *Model, n int, limit sharing.Bytes, percent uint64) (server ClientID, clients []ClientID) {
	t.Helper()
	open := func(pid int) ClientID {
		id, err := m.Open(0, pid)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	server = open(1)
	if err := m.Serve(server); err != nil {
		t.Fatal(err)
	}
	if _, err := m.CreateContext(server, 0, nil); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		id := open(10 + i)
		if err := m.AddMPSClient(id, 1, limit, percent); err != nil {
			t.Fatal(err)
		}
		clients = append(clients, id)
	}
	return server, clients
}

func TestMPSMemory(t *testing.T) {
	m := testMachine(t, "h100x8", machine.Misc)
	_, clients := mpsOn(t, m, 1, 4*sharing.GiB, 100)
	ctx, err := m.CreateContext(clients[0], 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	cost := m.gpus[0].hw.Model.Context
	for _, kind := range []wire.Kind{wire.KindLinear, wire.KindAsync, wire.KindVMM} {
		at, err := m.Alloc(clients[0], 4*sharing.GiB-cost, ctx, kind, nil)
		if err != nil {
			t.Fatalf("kind %d up to the limit: %v", kind, err)
		}
		if _, err := m.Alloc(clients[0], 1, ctx, kind, nil); !errors.Is(err, wire.OutOfMemory) {
			t.Errorf("kind %d past the limit: %v", kind, err)
		}
		v, err := m.MemoryFor(clients[0], nil)
		if err != nil || v.Free != 0 || v.Total != m.gpus[0].hw.Model.Memory || v.Total != v.Reserved+v.Free+v.Used {
			t.Errorf("kind %d: sees %+v, %v", kind, v, err)
		}
		if err := m.Free(clients[0], at); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.Alloc(clients[0], 9*sharing.GiB, ctx, wire.KindManaged, nil); err != nil {
		t.Errorf("managed memory is not pinned: %v", err)
	}
	if err := m.DestroyContext(clients[0], ctx); err != nil {
		t.Fatal(err)
	}
	if got := m.clients[clients[0]].pinned; got != 0 {
		t.Errorf("%v still counts after all was freed", got)
	}
}

func TestMPSJoin(t *testing.T) {
	m := testMachine(t, "h100x8", machine.Misc)
	server, clients := mpsOn(t, m, mpsClients, NoLimit, 100)
	late, err := m.Open(0, 99)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		pid     int
		percent uint64
		want    error
	}{
		"one too many":   {1, 100, wire.Insufficient},
		"no such server": {2, 100, wire.NotFound},
		"a client":       {10, 100, wire.NotFound},
		"no share":       {1, 0, wire.Invalid},
		"more than all":  {1, 101, wire.Invalid},
	} {
		if err := m.AddMPSClient(late, test.pid, NoLimit, test.percent); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
	m.Close(clients[0], 0)
	if err := m.AddMPSClient(late, 1, NoLimit, 100); err != nil {
		t.Errorf("after one has left: %v", err)
	}
	m.Close(server, 0)
	if _, err := m.CreateContext(late, 0, nil); !errors.Is(err, wire.ServerEnded) {
		t.Errorf("without its server: %v", err)
	}
	if got := m.gpus[0].inUse(); got != 0 {
		t.Errorf("%v is held by no one", got)
	}
	mig := testMachine(t, "mixed", machine.Misc)
	id, err := mig.Open(1, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := mig.Serve(id); !errors.Is(err, wire.NotSupported) {
		t.Errorf("a server in MIG mode: %v", err)
	}
}

// In exclusive mode a server and its clients are one.
func TestMPSExclusive(t *testing.T) {
	m := testMachine(t, "h100x8", machine.Misc)
	if err := m.SetComputeMode(0, true, ComputeExclusiveProcess); err != nil {
		t.Fatal(err)
	}
	_, clients := mpsOn(t, m, 2, NoLimit, 100)
	other, err := m.Open(0, 77)
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[ClientID]error{clients[0]: nil, clients[1]: nil, other: wire.InUse} {
		if _, err := m.CreateContext(id, 0, nil); !errors.Is(err, want) {
			t.Errorf("client %d: %v, want %v", id, err, want)
		}
	}
}

// Clients run at the same time. A client with fewer threads is slower.
func TestMPSLaunches(t *testing.T) {
	m := testMachine(t, "h100x8", machine.Misc)
	_, clients := mpsOn(t, m, 2, NoLimit, 50)
	blocks := m.gpus[0].hw.Model.SMs * m.gpus[0].hw.Model.ThreadsPerSM / 256 * 10 // ten waves of the whole GPU
	for _, id := range clients {
		ctx, err := m.CreateContext(id, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		done, err := m.Launch(id, ctx, blocks, 256, 0, time.Second)
		if want := time.Second + launchCost + 20*waveTime; err != nil || done != want {
			t.Errorf("done at %v, %v, want %v", done, err, want)
		}
		if _, err := m.Launch(id, ctx, 1, 1, time.Second, time.Second); err != nil {
			t.Fatal(err)
		}
	}
	if gpu, _, err := m.Utilization(0, 1500*time.Millisecond); err != nil || gpu != 50 {
		t.Errorf("busy for %d %%, %v, want 50: what runs at once counts once", gpu, err)
	}
	use, err := m.WorkOf(0, 1500*time.Millisecond)
	if d := cmp.Diff(map[int]int{m.clients[clients[0]].pid: 50, m.clients[clients[1]].pid: 50}, use); err != nil ||
		d != "" {
		t.Errorf("by process: %v (-want +got):\n%s", err, d)
	}
	if reported, err := m.ProcessUtilization(0, time.Second, 1500*time.Millisecond); err != nil || len(reported) != 2 {
		t.Errorf("as a driver reports it: %+v, %v", reported, err)
	}
	m.Close(clients[0], 1500*time.Millisecond)
	if gpu, _, err := m.Utilization(0, 3*time.Second); err != nil || gpu != 0 {
		t.Errorf("long after: %d %%, %v", gpu, err)
	}
}
