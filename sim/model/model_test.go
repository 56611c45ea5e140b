// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/machine"
	"github.com/kerf-gpu/kerf/sim/wire"
)

func TestMemoryIsTheGPUs(t *testing.T) {
	m := testMachine(t, "t4x4", machine.Dmem)
	p := open(t, m, 0, 100, inA)
	at := p.alloc((15360-266-120)*mib, inA, nil)
	p.alloc(1, inA, wire.OutOfMemory)
	q, err := m.Open(0, 101)
	wantErr(t, err, nil)
	_, err = m.CreateContext(q, 0, inA)
	wantErr(t, err, wire.OutOfMemory) // A context costs memory, too.
	wantErr(t, m.Free(p.id, at), nil)
	wantErr(t, m.Free(p.id, at), wire.NotFound)
	_, err = m.CreateContext(q, 0, inA)
	wantErr(t, err, nil)
	procs, err := m.Processes(0)
	none := wire.NoInstance
	want := []Process{{PID: 100, Bytes: 120 * mib, GI: none, CI: none},
		{PID: 101, Bytes: 120 * mib, GI: none, CI: none}}
	if d := cmp.Diff(want, procs); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	m.Close(p.id, 0)
	m.Close(p.id, 0)
	m.Close(q, 0)
	if procs, err = m.Processes(0); err != nil || len(procs) != 0 {
		t.Errorf("after the end: %v, %v", procs, err)
	}
}

func TestAllocRefuses(t *testing.T) {
	m := testMachine(t, "t4x4", machine.Dmem)
	p := open(t, m, 0, 100, nil)
	other := open(t, m, 0, 101, nil)
	theirs := other.alloc(gib, nil, nil)
	tests := map[string]struct {
		client ClientID
		bytes  sharing.Bytes
		ctx    uint64
		kind   wire.Kind
		want   error
	}{
		"no bytes":             {p.id, 0, p.ctx, wire.KindLinear, wire.Invalid},
		"no kind":              {p.id, 1, p.ctx, 0, wire.Invalid},
		"unknown kind":         {p.id, 1, p.ctx, 5, wire.Invalid},
		"no context":           {p.id, 1, 0, wire.KindLinear, wire.NotFound},
		"another's context":    {p.id, 1, other.ctx, wire.KindLinear, wire.NotFound},
		"unknown client":       {99, 1, p.ctx, wire.KindLinear, wire.NotFound},
		"all there is":         {p.id, NoLimit, p.ctx, wire.KindLinear, wire.OutOfMemory},
		"VMM without context":  {p.id, 1, 0, wire.KindVMM, nil},
		"VMM, another context": {p.id, 1, other.ctx, wire.KindVMM, wire.NotFound},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := m.Alloc(tt.client, tt.bytes, tt.ctx, tt.kind, nil)
			wantErr(t, err, tt.want)
		})
	}
	wantErr(t, m.Free(p.id, theirs), wire.NotFound)
	wantErr(t, m.DestroyContext(p.id, other.ctx), wire.NotFound)
}

func TestDestroyContextFreesWhatIsInIt(t *testing.T) {
	m := testMachine(t, "t4x4", machine.Dmem)
	p := open(t, m, 0, 100, nil)
	p.alloc(gib, nil, nil)
	vmm, err := m.Alloc(p.id, gib, 0, wire.KindVMM, nil)
	wantErr(t, err, nil)
	wantErr(t, m.DestroyContext(p.id, p.ctx), nil)
	if procs, _ := m.Processes(0); len(procs) != 1 || procs[0].Bytes != gib {
		t.Errorf("%v", procs)
	}
	wantErr(t, m.Free(p.id, vmm), nil)
	wantErr(t, m.DestroyContext(p.id, p.ctx), wire.NotFound)
}

func TestMIGInstancesAreApart(t *testing.T) {
	m := testMachine(t, "mixed", machine.Dmem)
	id, err := m.Open(1, 100)
	wantErr(t, err, nil)
	two, err := m.CreateContext(id, 2, nil)
	wantErr(t, err, nil)
	_, err = m.Alloc(id, 9500*mib, two, wire.KindLinear, nil)
	wantErr(t, err, wire.OutOfMemory) // beyond the instance, not the GPU
	_, err = m.Alloc(id, 9484*mib, two, wire.KindLinear, nil)
	wantErr(t, err, nil)
	first, err := m.CreateContext(id, 0, nil)
	wantErr(t, err, nil)
	_, err = m.Alloc(id, 15*gib, first, wire.KindAsync, nil)
	wantErr(t, err, nil)
	_, err = m.CreateContext(id, 5, nil)
	wantErr(t, err, wire.NotFound)
	procs, err := m.Processes(1)
	want := []Process{{PID: 100, GPU: 1, Bytes: 15*gib + 500*mib, GI: 1}, {PID: 100, GPU: 1, Bytes: 9984 * mib, GI: 2}}
	if d := cmp.Diff(want, procs); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	whole, err := m.Open(0, 100)
	wantErr(t, err, nil)
	_, err = m.CreateContext(whole, 1, nil)
	wantErr(t, err, wire.NotFound) // no instance on a GPU outside MIG mode
}

func TestEvents(t *testing.T) {
	m := testMachine(t, "t4x4", machine.Dmem)
	early := m.Now()
	for i, xid := range []uint64{13, 48, 31} {
		wantErr(t, m.Apply([]int{i}, Change{XID: set(xid)}, 0), nil)
	}
	late := m.Now()
	none := wire.NoInstance
	tests := map[string]struct {
		from        Cursor
		gpus, types uint64
		want        []Event
	}{
		"all": {early, 0xF, eventXID, []Event{{0, eventXID, 13, none, none}, {1, eventXID, 48, none, none},
			{2, eventXID, 31, none, none}}},
		"two of the GPUs": {early, 0b101, eventXID,
			[]Event{{0, eventXID, 13, none, none}, {2, eventXID, 31, none, none}}},
		"another type": {early, 0xF, 1, nil},
		"no GPU":       {early, 0, eventXID, nil},
		"came late":    {late, 0xF, eventXID, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var got []Event
			at := tt.from
			for {
				ev, next, ok := m.Next(at, tt.gpus, tt.types)
				at = next
				if !ok {
					break
				}
				got = append(got, ev)
			}
			if d := cmp.Diff(tt.want, got); d != "" || at != late {
				t.Errorf("ends at %d of %d (-want +got):\n%s", at, late, d)
			}
		})
	}
	for range 3 * history {
		wantErr(t, m.Apply([]int{3}, Change{XID: set(uint64(45))}, 0), nil)
	}
	if len(m.events.list) > 2*history {
		t.Errorf("%d events are kept", len(m.events.list))
	}
	if ev, next, ok := m.Next(early, 0xF, eventXID); !ok || ev.Data != 45 || next <= late {
		t.Errorf("a waiter that is behind gets %+v, %d, %v", ev, next, ok)
	}
}

func TestXIDs(t *testing.T) {
	tests := map[uint64]struct {
		lost     bool
		recovery Recovery
	}{
		13: {}, 31: {}, 43: {}, 45: {}, 68: {}, 94: {}, 109: {},
		48: {recovery: RecoveryReset}, 62: {recovery: RecoveryReset}, 64: {recovery: RecoveryReset},
		74: {recovery: RecoveryReset}, 95: {recovery: RecoveryReset},
		79: {lost: true},
	}
	for xid, want := range tests {
		m := testMachine(t, "t4x4", machine.Dmem)
		p := open(t, m, 0, 100, nil)
		wantErr(t, m.Apply([]int{0}, Change{XID: &xid}, 0), nil)
		st, err := m.Status(0)
		if err != nil || st.Lost != want.lost || st.Recovery != want.recovery {
			t.Errorf("XID %d: %+v, %v", xid, st, err)
		}
		if want.lost {
			continue
		}
		p.alloc(mib, nil, nil) // The GPU goes on.
		if want.recovery == RecoveryReset {
			wantErr(t, m.Apply([]int{0}, Change{Reset: true}, 0), sharing.ErrConflict)
			m.Close(p.id, 0)
			wantErr(t, m.Apply([]int{0}, Change{Reset: true}, 0), nil)
			if r, err := m.Recovery(0); err != nil || r != RecoveryNone {
				t.Errorf("XID %d after the reset: %v, %v", xid, r, err)
			}
		}
	}
}

func TestLost(t *testing.T) {
	m := testMachine(t, "t4x4", machine.Dmem)
	setLimit(t, m, inA, 4*gib)
	p := open(t, m, 0, 100, inA)
	at := p.alloc(gib, inA, nil)
	wantErr(t, m.Apply([]int{0}, Change{XID: set(uint64(48))}, 0), nil)
	wantErr(t, m.Apply([]int{0}, Change{Lost: set(true)}, 0), nil)

	calls := map[string]func() error{
		"hardware":  func() error { _, err := m.Hardware(0); return err },
		"memory":    func() error { _, err := m.Memory(0, nil); return err },
		"util":      func() error { _, _, err := m.Utilization(0, 0); return err },
		"processes": func() error { _, err := m.Processes(0); return err },
		"topology":  func() error { _, _, err := m.Topology(0, 1); return err },
		"recovery":  func() error { _, err := m.Recovery(0); return err },
		"set limit": func() error { return m.SetLimit(0, true, inA, 0, gib) },
		"get limit": func() error { _, err := m.GetLimit(0, inA); return err },
		"context":   func() error { _, err := m.CreateContext(p.id, 0, nil); return err },
		"destroy":   func() error { return m.DestroyContext(p.id, p.ctx) },
		"alloc":     func() error { _, err := m.Alloc(p.id, 1, p.ctx, wire.KindLinear, nil); return err },
		"free":      func() error { return m.Free(p.id, at) },
		"launch":    func() error { _, err := m.Launch(p.id, p.ctx, 1, 1, 0, 0); return err },
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, wire.Lost) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if l := m.Limits(); len(l) != 1 || l[0].Used != 0 {
		t.Errorf("limits of a lost GPU: %+v", l)
	}
	if _, err := m.Memory(1, nil); err != nil {
		t.Errorf("the other GPU: %v", err)
	}
	wantErr(t, m.Apply([]int{0}, Change{Reset: true}, 0), sharing.ErrInvalid)
	wantErr(t, m.Apply([]int{0}, Change{Lost: set(false)}, 0), nil)
	if st, _ := m.Status(0); st.Lost || st.Recovery != RecoveryNone || st.Memory.Used != 0 {
		t.Errorf("back on the bus: %+v", st)
	}
	wantErr(t, m.Free(p.id, at), wire.NotFound)
	_, err := m.Alloc(p.id, 1, p.ctx, wire.KindLinear, nil)
	wantErr(t, err, wire.NotFound)
}

func TestApplyIsAllOrNothing(t *testing.T) {
	tests := map[string]struct {
		gpus []int
		c    Change
		want string
	}{
		"no such gpu":       {[]int{0, 4}, Change{Util: set(5)}, `gpu "4"`},
		"negative gpu":      {[]int{-1}, Change{Util: set(5)}, `gpu "-1"`},
		"xid 0":             {[]int{0}, Change{Util: set(5), XID: set(uint64(0))}, "xid"},
		"xid too high":      {[]int{0}, Change{Util: set(5), XID: set(uint64(1000))}, "xid"},
		"util too high":     {[]int{0}, Change{Util: set(101), XID: set(uint64(13))}, "util"},
		"util too low":      {[]int{0}, Change{Util: set(-2)}, "util"},
		"latency below 0":   {[]int{0}, Change{Util: set(5), Latency: set(-time.Second)}, "latency"},
		"latency too long":  {[]int{0}, Change{Util: set(5), Latency: set(25 * time.Hour)}, "latency"},
		"ramp below 0":      {[]int{0}, Change{Latency: set(time.Second), Ramp: -1}, "ramp"},
		"ramp of nothing":   {[]int{0}, Change{Util: set(5), Ramp: time.Second}, "ramp"},
		"lost and reset":    {[]int{0}, Change{Lost: set(true), Reset: true}, "reset"},
		"back and XID 79":   {[]int{0}, Change{Lost: set(false), XID: set(uint64(79))}, "xid"},
		"reset of one held": {[]int{0, 1}, Change{Util: set(5), Reset: true}, "process 100 holds it"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := testMachine(t, "t4x4", machine.Dmem)
			open(t, m, 1, 100, nil)
			before, _ := m.Status(0)
			err := m.Apply(tt.gpus, tt.c, 0)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got %v, want %q in it", err, tt.want)
			}
			if after, _ := m.Status(0); after != before || m.Now() != 0 {
				t.Errorf("was %+v, is %+v with %d events", before, after, m.Now())
			}
		})
	}
}

// TestLatencyRises: a GPU that fails answers later and later.
func TestLatencyRises(t *testing.T) {
	m := testMachine(t, "t4x4", machine.Dmem)
	const now = time.Minute
	if err := m.Apply([]int{0}, Change{Latency: set(8 * time.Second), Ramp: 4 * time.Second}, now); err != nil {
		t.Fatal(err)
	}
	for at, want := range map[time.Duration]time.Duration{
		-time.Second: 0, 0: 0, time.Second: 2 * time.Second, 4 * time.Second: 8 * time.Second,
		time.Hour: 8 * time.Second,
	} {
		if late := m.Latency(0, now+at); late != want {
			t.Errorf("%v after its start: %v late, want %v", at, late, want)
		}
	}
	if late := m.Latency(1, now+time.Hour); late != 0 {
		t.Errorf("another GPU is %v late", late)
	}
}

func TestTopology(t *testing.T) {
	type edge struct{ level, links uint64 }
	tests := map[string]struct {
		machine string
		a, b    int
		want    edge
	}{
		"itself":            {"h100x8", 0, 0, edge{0, 0}},
		"the same node":     {"h100x8", 0, 3, edge{40, 18}},
		"another node":      {"h100x8", 0, 4, edge{50, 18}},
		"no NVLink":         {"t4x4", 0, 1, edge{40, 0}},
		"links to nowhere":  {"mixed", 0, 1, edge{40, 0}},
		"two kinds of GPUs": {"mixed", 0, 2, edge{50, 0}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := testMachine(t, tt.machine, machine.Dmem)
			level, links, err := m.Topology(tt.a, tt.b)
			if err != nil || (edge{level, links}) != tt.want {
				t.Errorf("got %d, %d, %v; want %+v", level, links, err, tt.want)
			}
		})
	}
	m := testMachine(t, "t4x4", machine.Dmem)
	_, _, err := m.Topology(0, 4)
	wantErr(t, err, wire.Invalid)
}
