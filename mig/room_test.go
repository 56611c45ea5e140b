// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mig_test

import (
	"math/rand/v2"
	"testing"

	"github.com/kerf-gpu/kerf/mig"
)

// In whatever room, more of a GPU is never worth less, nothing is worth nothing, and no GPU more than One.
func TestValuesInARoomGrowWithIt(t *testing.T) {
	for model := range machines {
		table := table(t, model)
		random := rand.New(rand.NewPCG(3, 2))
		for range 5 {
			demand, room := mig.Demand{}, mig.FreeCapacity{}
			for _, p := range table.Profiles() {
				demand[p.ID] = float64(random.IntN(4))
			}
			for range random.IntN(20) {
				room[mig.Mask(random.Uint32())&table.Full()] = random.IntN(40)
			}
			v := mig.NewValues(table, demand).In(room)
			if random.IntN(2) == 0 {
				v = mig.Counted(table, demand).In(room)
			}
			if v.Of(0) != 0 || v.Of(table.Full()) > mig.One {
				t.Fatalf("%s: none is worth %d, all %d", model, v.Of(0), v.Of(table.Full()))
			}
			for free := range table.Full() + 1 {
				for unit := range table.Axis() {
					if loss := v.Loss(free|1<<unit, 1<<unit); loss < 0 {
						t.Fatalf("%s: unit %d next to %s is worth %d", model, unit, free, loss)
					}
				}
			}
		}
	}
}

// bigDemand is for profiles of half a GPU and of all of it, and few small ones.
func bigDemand(t *testing.T, table *mig.Table) mig.Demand {
	t.Helper()
	d := mig.Demand{}
	for i, name := range []string{"1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"} {
		d[id(t, table, name)] = []float64{1, 1, 2, 4, 4, 6}[i]
	}
	return d
}

// A 3g can begin an empty GPU, at 4, or complete one whose units 0-3 are free, which a 4g could use too. One such GPU
// among empty ones is kept for a 4g; many with few empty ones, which a 7g needs, are not.
func TestManyHalvesAreWorthLessThanOne(t *testing.T) {
	table := table(t, "H100")
	usual := mig.NewValues(table, bigDemand(t, table))
	low, high := mig.Mask(0x0f), mig.Mask(0xf0)
	for _, tt := range []struct {
		empty, halves int
		completes     bool
	}{{40, 1, false}, {10, 30, true}} {
		v := usual.In(mig.FreeCapacity{table.Full(): tt.empty, low: tt.halves})
		if got := v.Loss(low, low) < v.Loss(table.Full(), high); got != tt.completes {
			t.Errorf("%+v: a half costs %d, half of an empty GPU %d", tt, v.Loss(low, low), v.Loss(table.Full(), high))
		}
	}
}

// Units of an empty GPU that no request can use any more do not count: if only 1g are requested, halves are as good.
func TestScarceEmptyGPUsAreWorthMore(t *testing.T) {
	table := table(t, "H100")
	usual := mig.NewValues(table, bigDemand(t, table))
	begin := func(empty int) mig.Value {
		v := usual.In(mig.FreeCapacity{table.Full(): empty, 0x0f: 6, 0xf0: 6})
		return v.Loss(table.Full(), 0xf0)
	}
	if few, many := begin(3), begin(60); few <= many {
		t.Errorf("to begin an empty GPU costs %d of 3, %d of 60", few, many)
	}
}

// A profile without requests so far has some value, and less the more requests for others there were. A policy that
// knows the demand gives it up.
func TestWhatWasNotAskedForYetIsKept(t *testing.T) {
	table := table(t, "H100")
	small, err := table.Lookup("small", "1g.10gb")
	if err != nil {
		t.Fatal(err)
	}
	room := mig.FreeCapacity{table.Full(): 2, 0x7e: 8}
	last := func(v *mig.Values) mig.Value { // the smallest instance on an empty GPU, in place of one in use
		in := v.In(room)
		return in.Loss(table.Full(), 1<<6) - in.Loss(0x7e, 1<<6)
	}
	few, many := last(mig.Counted(table, mig.Demand{small.ID: 4})), last(mig.Counted(table, mig.Demand{small.ID: 4000}))
	if few <= many || many < 0 {
		t.Errorf("after 4 requests for %s an empty GPU costs %d more, after 4000 %d", small.Name, few, many)
	}
	if known := last(mig.NewValues(table, mig.Demand{small.ID: 1})); few <= known {
		t.Errorf("after 4 requests it costs %d more, and %d where it is known that no others come", few, known)
	}
}

// Where nothing was counted all are expected alike, as where nothing is known.
func TestCountedNothing(t *testing.T) {
	for model := range machines {
		table := table(t, model)
		counted, alike := mig.Counted(table, nil), mig.NewValues(table, nil)
		for free := range table.Full() + 1 {
			if counted.Of(free) != alike.Of(free) {
				t.Fatalf("%s: %s is worth %d, and %d where all are expected alike", model, free, counted.Of(free),
					alike.Of(free))
			}
		}
	}
}

func BenchmarkIn(b *testing.B) {
	for _, model := range []string{"A30", "H100", "RTX PRO 6000"} {
		b.Run(model, func(b *testing.B) {
			table := table(b, model)
			v := mig.NewValues(table, nil)
			room := mig.FreeCapacity{table.Full(): 40}
			for free := range table.Full() {
				if free%5 == 3 && len(room) < 20 {
					room[free] = int(free%7) + 1
				}
			}
			for b.Loop() {
				v.In(room)
			}
		})
	}
}
