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

// The H200 has the figures that were measured on one; a setting replaces single ones. Here work runs in the order of
// its launches, without slices.
func TestCostsOfTheH200(t *testing.T) {
	m := testMachine(t, "h200x8", machine.Misc)
	want := machine.Costs{ContextTime: 130 * ms, ListTime: 60 * ms, ExitTime: 65 * ms, Stream: 512 * sharing.KiB,
		Unlisted: 9011 * sharing.KiB, Switch: 130 * us, Preempt: 70 * us}
	if got := m.Costs(0); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	p := open(t, m, 0, 1, nil)
	if mem, err := m.Memory(0, nil); err != nil || mem.Used != 518*mib+9011*sharing.KiB {
		t.Errorf("%+v in use with a context, %v", mem, err)
	}
	if list, err := m.Processes(0); err != nil || len(list) != 1 || list[0].Bytes != 518*mib || p.ctx == 0 {
		t.Errorf("%+v, %v", list, err)
	}
	if err := m.Apply([]int{0}, Change{Costs: CostChange{List: new(5 * ms)}}, 0); err != nil {
		t.Fatal(err)
	}
	want.ListTime = 5 * ms
	if got := m.Costs(0); got != want {
		t.Errorf("after a change: %+v, want %+v", got, want)
	}
	assumed := machine.Costs{Switch: 130 * us, Preempt: 70 * us}
	if got := testMachine(t, "h100x8", machine.Misc).Costs(0); got != assumed {
		t.Errorf("an H100, which was not measured, has %+v, want %+v", got, assumed)
	}
}

// Lists wait only in the first part of the time that a context takes, and other calls never.
func TestListsWaitForAContext(t *testing.T) {
	m := testMachine(t, "h200x8", machine.Misc)
	m.Begun(0, time.Second)
	for start, want := range map[time.Duration]time.Duration{
		time.Second:         time.Second + 60*ms,
		time.Second + 59*ms: time.Second + 60*ms,
		time.Second + 61*ms: time.Second + 61*ms,
	} {
		if got := m.Answered(0, wire.OpProcesses, start); got != want {
			t.Errorf("a list asked for at %s comes at %s, want %s", start, got, want)
		}
		if got := m.Answered(0, wire.OpMemory, start); got != start {
			t.Errorf("memory asked for at %s comes at %s", start, got)
		}
		if got := m.Answered(1, wire.OpProcesses, start); got != start {
			t.Errorf("a list of another GPU asked for at %s comes at %s", start, got)
		}
	}
	if got := m.Answered(0, wire.OpCtxCreate, time.Second); got != time.Second+130*ms {
		t.Errorf("a context comes at %s", got)
	}
}

// A process that has ended keeps its memory and its place in the list for a time, and its work ends at once. Who has
// no context is off the GPU at once.
func TestEndedProcessStays(t *testing.T) {
	m := testMachine(t, "h200x8", machine.Misc)
	p, q := open(t, m, 0, 1, nil), open(t, m, 0, 2, nil)
	idle, err := m.Open(0, 3)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Launch(p.id, p.ctx, 1, 1, time.Minute, 0); err != nil {
		t.Fatal(err)
	}
	if until := m.Leave(idle, time.Second); until != 0 || m.clients[idle] != nil {
		t.Errorf("one without a context stays until %s", until)
	}
	for _, at := range []time.Duration{time.Second, time.Second + ms} {
		if until := m.Leave(p.id, at); until != time.Second+65*ms {
			t.Errorf("asked at %s it stays until %s", at, until)
		}
	}
	if gpu, _, err := m.Utilization(0, 2*time.Second); err != nil || gpu != 0 {
		t.Errorf("busy for %d %% in the second after the end, %v", gpu, err)
	}
	if m.clients[p.id].is(1) {
		t.Error("its number names the ended process still")
	}
	if closed := m.Left(time.Second + 64*ms); len(closed) != 0 {
		t.Errorf("closed too early: %v", closed)
	}
	if list, err := m.Processes(0); err != nil || len(list) != 2 {
		t.Errorf("before it has left: %+v, %v", list, err)
	}
	if closed := m.Left(time.Second + 65*ms); len(closed) != 1 || closed[0] != p.id || len(m.leaving) != 0 {
		t.Errorf("closed %v, %v are leaving", closed, m.leaving)
	}
	if list, err := m.Processes(0); err != nil || len(list) != 1 || list[0].PID != 2 {
		t.Errorf("after it has left: %+v, %v", list, err)
	}
	m.Leave(q.id, time.Second)
	m.Close(q.id, time.Second) // the driver itself ends
	if closed := m.Left(time.Minute); len(closed) != 0 || m.gpus[0].inUse() != 0 {
		t.Errorf("%v closed twice, %s in use", closed, m.gpus[0].inUse())
	}
	if _, err := m.client(q.id); !errors.Is(err, wire.NotFound) {
		t.Errorf("a closed client: %v", err)
	}
}
