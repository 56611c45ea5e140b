// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"math"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sim/machine"
	"github.com/kerf-gpu/kerf/sim/wire"
)

func TestLaunchesRunOneAfterTheOther(t *testing.T) {
	m := testMachine(t, "t4x4", machine.Dmem)
	p, q := open(t, m, 0, 100, nil), open(t, m, 0, 101, nil)
	launch := func(p process, asked, now, want time.Duration) {
		t.Helper()
		got, err := m.Launch(p.id, p.ctx, 1, 1, asked, now)
		if err != nil || got != want {
			t.Errorf("got %v, %v; want %v", got, err, want)
		}
	}
	util := func(now time.Duration, want int) {
		t.Helper()
		if got, mem, err := m.Utilization(0, now); err != nil || got != want || mem != want/2 {
			t.Errorf("at %v: %d, %d, %v; want %d", now, got, mem, err, want)
		}
	}
	util(10*sec, 0)
	launch(p, 100*time.Millisecond, 10*sec, 10*sec+100*time.Millisecond)
	launch(q, 300*time.Millisecond, 10*sec, 10*sec+400*time.Millisecond)
	launch(p, 500*time.Millisecond, 10*sec, 10*sec+900*time.Millisecond)
	util(10*sec, 0)
	util(10*sec+500*time.Millisecond, 50)
	util(11*sec, 90)
	m.Close(q.id, 10*sec+200*time.Millisecond) // 200 of its 300 ms are not done
	util(11*sec, 70)
	launch(p, 0, 20*sec, 20*sec+launchCost+waveTime)
	util(40*sec, 0)
	wantErr(t, m.Apply([]int{0}, Change{Util: set(80)}, 0), nil)
	util(40*sec, 80)
	wantErr(t, m.Apply([]int{0}, Change{Util: set(AutoUtil)}, 0), nil)
	util(40*sec, 0)
}

func TestLaunchTakesAsLongAsItsGrid(t *testing.T) {
	m := testMachine(t, "t4x4", machine.Dmem)
	p := open(t, m, 0, 100, nil)
	tests := map[string]struct {
		blocks, threads uint64
		want            time.Duration
	}{
		"one thread":          {1, 1, launchCost + waveTime},
		"all threads":         {40, 1024, launchCost + waveTime},
		"one block more":      {41, 1024, launchCost + 2*waveTime},
		"a thousand of waves": {40_000, 1024, launchCost + 1000*waveTime},
	}
	now := time.Duration(0)
	for name, tt := range tests {
		now += time.Hour
		got, err := m.Launch(p.id, p.ctx, tt.blocks, tt.threads, 0, now)
		if err != nil || got-now != tt.want {
			t.Errorf("%s: %v, %v; want %v", name, got-now, err, tt.want)
		}
	}
}

func TestLaunchRefuses(t *testing.T) {
	m := testMachine(t, "t4x4", machine.Dmem)
	p := open(t, m, 0, 100, nil)
	tests := map[string]struct {
		ctx, blocks, threads uint64
		asked                time.Duration
		want                 error
	}{
		"no context":       {p.ctx + 1, 1, 1, 0, wire.NotFound},
		"no blocks":        {p.ctx, 0, 1, 0, wire.Invalid},
		"no threads":       {p.ctx, 1, 0, 0, wire.Invalid},
		"too many threads": {p.ctx, 1, 1025, 0, wire.Invalid},
		"grid wraps":       {p.ctx, math.MaxUint64, 1024, 0, wire.Invalid},
		"grid is huge":     {p.ctx, math.MaxUint64 / 1024, 1024, 0, wire.Invalid},
		"asked below zero": {p.ctx, 1, 1, -1, wire.Invalid},
		"asked too long":   {p.ctx, 1, 1, maxLaunch + 1, wire.Invalid},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := m.Launch(p.id, tt.ctx, tt.blocks, tt.threads, tt.asked, 0)
			wantErr(t, err, tt.want)
		})
	}
	var err error
	for range 30 {
		if _, err = m.Launch(p.id, p.ctx, 1, 1, maxLaunch, 0); err != nil {
			break
		}
	}
	wantErr(t, err, wire.Insufficient)
}

func TestBusyStaysSmall(t *testing.T) {
	var b busy
	both := []*client{{id: 1}, {id: 2}}
	for i := range 3 * maxInterval {
		b.add(both[i%2], time.Millisecond, 0)
	}
	if len(b.spans) > maxInterval {
		t.Errorf("%d intervals", len(b.spans))
	}
	if want := 3 * maxInterval * time.Millisecond; b.free() != want {
		t.Errorf("done at %v, want %v", b.free(), want)
	}
}

func TestAddressesAreUsedAgainOnlyWhenFree(t *testing.T) {
	a := newAddresses(2)
	quarter := gib * (window / 4 >> 30)
	var at [4]uint64
	for i := range at {
		var ok bool
		if at[i], ok = a.get(quarter); !ok || at[i] != a.base+uint64(i)*window/4 {
			t.Fatalf("address %d: %x, %v", i, at[i], ok)
		}
	}
	if x, ok := a.get(1); ok {
		t.Fatalf("a full window gave %x", x)
	}
	a.put(at[1])
	if x, ok := a.get(quarter + 1); ok {
		t.Fatalf("a gap too small gave %x", x)
	}
	if x, ok := a.get(1); !ok || x != at[1] {
		t.Fatalf("got %x, %v; want %x", x, ok, at[1])
	}
	if x, ok := a.get(1); !ok || x != at[1]+pageSize {
		t.Fatalf("got %x, %v; want the page after", x, ok)
	}
	if x, ok := a.get(0); ok {
		t.Fatalf("no bytes gave %x", x)
	}
}
