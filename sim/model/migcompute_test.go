// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sim/wire"
)

// The places of compute instances that nvidia-smi mig -lcipp shows, by the size of the GPU instance.
func TestComputePlaces(t *testing.T) {
	want := map[int]map[int][]int{
		1: {1: {0}}, 2: {1: {0, 1}, 2: {0}}, 3: {1: {0, 1, 2}, 2: {0}, 3: {0}}, 4: {1: {0, 1, 2, 3}, 2: {0, 2}, 4: {0}},
		7: {1: {0, 1, 2, 3, 4, 5, 6}, 2: {0, 2, 4}, 3: {0, 4}, 4: {0}, 7: {0}},
	}
	for size, places := range want {
		got := map[int][]int{}
		for slices := range 10 {
			if starts := computeStarts(size, slices-1); starts != nil {
				got[slices-1] = starts
			}
		}
		if d := cmp.Diff(places, got); d != "" {
			t.Errorf("in %d slices (-want +got):\n%s", size, d)
		}
	}
}

// Several compute instances share a GPU instance's memory, and each is in use by itself.
func TestSeveralComputeInstances(t *testing.T) {
	m := inMIG(t, "h100x8")
	gi, err := m.CreateGI(0, true, 9, 4) // 3g.40gb
	wantErr(t, err, nil)
	create := func(slices, start int, want error) uint64 {
		t.Helper()
		id, err := m.CreateCI(0, true, gi, slices, start)
		wantErr(t, err, want)
		return id
	}
	create(4, AnyStart, wire.NotSupported)
	create(2, 1, wire.Invalid)
	one, two := create(1, 2, nil), create(2, AnyStart, nil)
	create(1, AnyStart, wire.Insufficient)
	create(Whole, AnyStart, wire.Insufficient)
	if one != 0 || two != 1 {
		t.Errorf("ids %d and %d", one, two)
	}
	a, err := m.Open(0, 100)
	wantErr(t, err, nil)
	b, err := m.Open(0, 200)
	wantErr(t, err, nil)
	first, err := m.CreateContext(a, device(gi, one), inA)
	wantErr(t, err, nil)
	second, err := m.CreateContext(b, device(gi, two), inB)
	wantErr(t, err, nil)
	_, err = m.CreateContext(b, device(gi, 2), inB)
	wantErr(t, err, wire.NotFound)
	_, err = m.Alloc(a, 30*gib, first, wire.KindLinear, inA)
	wantErr(t, err, nil)
	_, err = m.Alloc(b, 30*gib, second, wire.KindLinear, inB)
	wantErr(t, err, wire.OutOfMemory) // of the same 40
	processes, err := m.Processes(0)
	wantErr(t, err, nil)
	for i, want := range []Process{{PID: 100, GI: gi, CI: one}, {PID: 200, GI: gi, CI: two}} {
		if got := processes[i]; got.PID != want.PID || got.GI != want.GI || got.CI != want.CI || len(processes) != 2 {
			t.Errorf("processes %+v", processes)
		}
	}
	wantErr(t, m.DestroyCI(0, true, gi, two), wire.InUse)
	m.Close(b, 0)
	wantErr(t, m.DestroyCI(0, true, gi, one), wire.InUse)
	wantErr(t, m.DestroyCI(0, true, gi, two), nil)
	wantErr(t, m.DestroyGI(0, true, gi), wire.InUse)
	if again := create(1, AnyStart, nil); again != two {
		t.Errorf("the id %d is not given again: %d", two, again)
	}
	wantErr(t, m.DestroyCI(0, true, gi, two), nil)
	m.Close(a, 0)
	wantErr(t, m.DestroyCI(0, true, gi, one), nil)
	wantErr(t, m.DestroyGI(0, true, gi), nil)
}

// Whatever instances come and go, no two have the same numbers. One that reuses an id has other numbers than the last
// with that id, over reboots too.
func TestCapabilityBlocksMove(t *testing.T) {
	for _, name := range []string{"a30x2", "h100x8", "rtxpro6000x4"} {
		m := inMIG(t, name)
		hw, err := m.Hardware(0)
		wantErr(t, err, nil)
		r := rand.New(rand.NewPCG(3, 4))
		last, passedOn := map[uint64]int{}, 0
		for range 2000 {
			list, err := m.Instances(0)
			wantErr(t, err, nil)
			if r.IntN(50) == 0 {
				wantErr(t, m.Apply([]int{0}, Change{Reboot: true}, 0), nil)
				_, err = m.SetMIGMode(0, Caller{Root: true}, 1)
				wantErr(t, err, nil)
				continue
			}
			if len(list) > 0 && r.IntN(3) == 0 {
				wantErr(t, m.DestroyGI(0, true, list[r.IntN(len(list))].GI), nil)
				continue
			}
			gi, err := m.CreateGI(0, true, hw.Model.Profiles[r.IntN(len(hw.Model.Profiles))].ID, AnyStart)
			if err != nil {
				continue
			}
			list, err = m.Instances(0)
			wantErr(t, err, nil)
			in := list[slices.IndexFunc(list, func(in Instance) bool { return in.GI == gi })]
			was, again := last[gi]
			others := slices.ContainsFunc(list, func(o Instance) bool { return o.GI != gi && o.Block == in.Block })
			if again && was == in.Block || others || in.Block < 0 || in.Block >= CapBlocks {
				t.Fatalf("%s: instance %d has block %d after %d: %+v", name, gi, in.Block, was, list)
			}
			for id, block := range last {
				if id != gi && block == in.Block {
					passedOn++
				}
			}
			last[gi] = in.Block
		}
		if passedOn < 50 {
			t.Errorf("%s: numbers were given to others %d times: too few to be a test", name, passedOn)
		}
	}
}
