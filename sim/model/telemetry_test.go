// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sim/machine"
	"github.com/kerf-gpu/kerf/sim/wire"
)

func TestWorkOfProcesses(t *testing.T) {
	m := testMachine(t, "t4x4", machine.Dmem)
	p, q := open(t, m, 0, 100, nil), open(t, m, 0, 101, nil)
	again := open(t, m, 0, 100, nil) // the same process once more
	for _, l := range []struct {
		p    process
		work time.Duration
	}{{p, 100}, {q, 300}, {again, 200}} {
		if _, err := m.Launch(l.p.id, l.p.ctx, 1, 1, l.work*time.Millisecond, 10*sec); err != nil {
			t.Fatal(err)
		}
	}
	want := map[int]int{100: 30, 101: 30}
	got, err := m.WorkOf(0, 11*sec)
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	m.Close(q.id, 11*sec) // what it has done stays done
	if got, err = m.WorkOf(0, 11*sec); err != nil || cmp.Diff(want, got) != "" {
		t.Errorf("%v, %v", got, err)
	}
	if got, err = m.WorkOf(0, 20*sec); err != nil || len(got) != 0 {
		t.Errorf("%v, %v, want no one", got, err)
	}
}

func TestChangesOfCallsAndCounters(t *testing.T) {
	m := testMachine(t, "t4x4", machine.Dmem)
	p := open(t, m, 0, 7, nil)
	wantErr(t, m.Apply([]int{0}, Change{
		CallLatency:  map[wire.Op]time.Duration{wire.OpMemory: sec},
		CallStatus:   map[wire.Op]wire.Status{wire.OpMemory: wire.Timeout},
		RemapPending: set(true), RemapFailed: set(true), Slowed: set(SlowedByHeat), LinksDown: set(3),
		ECCCorrected: set(uint64(5)), Util: set(100), Lists: map[int]wire.List{7: wire.ListMPS},
	}, 0), nil)
	if got, want := m.CallFault(0, wire.OpMemory), (CallFault{Latency: sec, Status: wire.Timeout}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := m.CallFault(0, wire.OpAlloc); got != (CallFault{}) {
		t.Errorf("another call: %+v", got)
	}
	wantErr(t, m.Apply([]int{0}, Change{CallStatus: map[wire.Op]wire.Status{wire.OpMemory: wire.OK}}, 0), nil)
	if got := m.CallFault(0, wire.OpMemory); got != (CallFault{Latency: sec}) {
		t.Errorf("recovered: %+v", got)
	}
	got, err := m.Telemetry(0, 0)
	want := Telemetry{Power: 70000, PowerLimit: 70000, SMClock: 1590, MaxSMClock: 1590, MemoryClock: 5001,
		MaxMemoryClock: 5001, Temperature: 75, ECC: ECC{Corrected: 5}, Remap: Remap{true, true}, Slowed: SlowedByHeat}
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	if n, err := m.LinksDown(0); err != nil || n != 3 {
		t.Errorf("%d links down, %v", n, err)
	}
	for list, n := range map[wire.List]int{wire.ListCompute: 0, wire.ListGraphics: 0, wire.ListMPS: 1} {
		if got, err := m.Listed(0, list); err != nil || len(got) != n {
			t.Errorf("list %d: %v, %v, want %d", list, got, err, n)
		}
	}
	m.Close(p.id, 0)
	for _, c := range []Change{
		{CallLatency: map[wire.Op]time.Duration{wire.OpFree: -1}},
		{Lists: map[int]wire.List{7: wire.ListMPS}},
	} {
		if m.Apply([]int{0}, c, 0) == nil {
			t.Errorf("%+v is taken", c)
		}
	}
}
