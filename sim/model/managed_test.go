// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/machine"
	"github.com/kerf-gpu/kerf/sim/wire"
)

func (p process) managed(bytes sharing.Bytes, chain Chain) uint64 {
	p.t.Helper()
	at, err := p.m.Alloc(p.id, bytes, p.ctx, wire.KindManaged, chain)
	wantErr(p.t, err, nil)
	return at
}

func (p process) reside(at uint64, bytes, want sharing.Bytes) {
	p.t.Helper()
	got, err := p.m.Reside(p.id, at, bytes)
	wantErr(p.t, err, nil)
	if got != want {
		p.t.Fatalf("%d MiB are on the GPU, want %d", got/mib, want/mib)
	}
}

func (p process) holds(want sharing.Bytes) {
	p.t.Helper()
	list, err := p.m.Processes(0)
	wantErr(p.t, err, nil)
	for _, q := range list {
		if q.PID == p.m.clients[p.id].pid && q.Bytes != want {
			p.t.Fatalf("process %d holds %d MiB, want %d", q.PID, q.Bytes/mib, want/mib)
		}
	}
}

// inUse checks the memory in use on the GPU, of which managed memory is a part.
func (p process) inUse(want sharing.Bytes) {
	p.t.Helper()
	got, err := p.m.Memory(0, nil)
	wantErr(p.t, err, nil)
	if got.Used != want {
		p.t.Fatalf("%d MiB are in use, want %d", got.Used/mib, want/mib)
	}
}

// Managed memory is in the GPU's use while it is there, in no process's number, and charged to no limit.
func TestManagedMemoryIsChargedToNoLimit(t *testing.T) {
	m := testMachine(t, "t4x4", machine.Dmem)
	setLimit(t, m, inA, gib)
	p := open(t, m, 0, 1, inA)
	at := p.managed(4*gib, inA)
	p.holds(120 * mib)
	p.reside(at, 3*gib, 3*gib)
	p.holds(120 * mib)
	p.inUse(3*gib + 120*mib)
	if l, err := m.GetLimit(0, inA); err != nil || l.Used != 120*mib {
		t.Errorf("charged %+v, %v, want the context alone", l, err)
	}
	p.reside(at, gib, gib)
	p.holds(120 * mib)
	p.inUse(gib + 120*mib)
	_, err := m.Reside(p.id, at, 5*gib)
	wantErr(t, err, wire.Invalid)
	linear := p.alloc(64*mib, nil, nil)
	_, err = m.Reside(p.id, linear, mib)
	wantErr(t, err, wire.NotFound)
	wantErr(t, m.Free(p.id, at), nil)
	p.holds(184 * mib)
	p.inUse(184 * mib)
}

// It makes room for others, and takes what room there is.
func TestManagedMemoryIsPushedOut(t *testing.T) {
	m := testMachine(t, "t4x4", machine.Dmem)
	p := open(t, m, 0, 1, nil)
	usable := 15360*mib - 266*mib
	a, b := p.managed(20*gib, nil), p.managed(20*gib, nil)
	p.reside(a, 20*gib, usable-120*mib)
	p.reside(b, 10*gib, 10*gib)
	p.holds(120 * mib)
	p.inUse(usable)
	q := open(t, m, 0, 2, nil) // its context has room, too
	q.alloc(usable-240*mib, nil, nil)
	p.inUse(usable)
	q.alloc(1, nil, wire.OutOfMemory)
	p.reside(a, gib, 0)
	m.Close(q.id, 0)
	p.reside(a, gib, gib)
	m.Close(p.id, 0)
	if got, err := m.Memory(0, nil); err != nil || got.Used != 0 {
		t.Errorf("after the end %+v, %v", got, err)
	}
}

// The peak stays after memory is freed, whatever process used it, until the count restarts.
func TestPeak(t *testing.T) {
	m := testMachine(t, "t4x4", machine.Dmem)
	want := func(gpu int, bytes sharing.Bytes) {
		t.Helper()
		st, err := m.Status(gpu)
		if err != nil || st.Peak != bytes {
			t.Errorf("at most %d MiB were held on GPU %d, %v; want %d", st.Peak/mib, gpu, err, bytes/mib)
		}
	}
	want(0, 0)
	p, q := open(t, m, 0, 1, nil), open(t, m, 0, 2, nil) // 120 MiB each
	at := p.alloc(gib, nil, nil)
	managed := q.managed(2*gib, nil)
	q.reside(managed, gib, gib)
	want(0, 2*gib+240*mib)
	wantErr(t, m.Free(p.id, at), nil)
	q.reside(managed, 0, 0)
	q.alloc(20*gib, nil, wire.OutOfMemory)
	m.Close(p.id, 0)
	want(0, 2*gib+240*mib)
	want(1, 0)
	wantErr(t, m.Apply([]int{0}, Change{CountPeak: true}, 0), nil)
	want(0, 120*mib)
	q.alloc(mib, nil, nil)
	want(0, 121*mib)

	server, err := m.Open(0, 3)
	wantErr(t, err, nil)
	wantErr(t, m.Serve(server), nil)
	_, err = m.CreateContext(server, 0, nil)
	wantErr(t, err, nil)
	want(0, 121*mib) // what it holds is no program's
	q.alloc(mib, nil, nil)
	want(0, 122*mib)
}
