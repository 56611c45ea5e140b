// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mig_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kerf-gpu/kerf/mig"
)

// Room is never worth less for being more, an empty GPU is worth One, and no room nothing.
func TestValuesGrowWithRoom(t *testing.T) {
	for model := range machines {
		table := table(t, model)
		random := rand.New(rand.NewPCG(1, 2))
		for range 5 {
			demand := mig.Demand{}
			for _, p := range table.Profiles() {
				demand[p.ID] = float64(random.IntN(4))
			}
			v := mig.NewValues(table, demand)
			if v.Of(0) != 0 || v.Of(table.Full()) != mig.One {
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

// On an empty GPU each profile goes where it keeps the large ones possible, and a 1g not to 6: unit 7 would be lost,
// because no profile begins there.
func TestWhereProfilesGoFirst(t *testing.T) {
	table := table(t, "H100")
	v := mig.NewValues(table, nil)
	for name, want := range map[string]int{"1g.10gb": 5, "1g.20gb": 6, "2g.20gb": 4, "3g.40gb": 4} {
		p := id(t, table, name)
		best, at := mig.One+1, -1
		for _, place := range table.Places(mig.Occupancy{}) {
			units, _ := table.Mask(place)
			if loss := v.Loss(table.Full(), units); place.Profile == p && loss <= best {
				best, at = loss, place.Start
			}
		}
		if at != want {
			t.Errorf("%s goes to %d, want %d", name, at, want)
		}
	}
}

// Profiles that come until nothing fits any more: by value far less stays empty than by the first place.
func TestFillUp(t *testing.T) {
	for mix, weights := range map[string][]float64{
		"uniform":      {1, 1, 1, 1, 1, 1},
		"mostly small": {5, 2, 2, 1, 0.5, 0.3},
		"mostly big":   {0.5, 0.5, 1, 2, 2, 3},
	} {
		table := table(t, "H100")
		demand := mig.Demand{}
		for i, name := range []string{"1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"} {
			demand[id(t, table, name)] = weights[i]
		}
		v := mig.NewValues(table, demand)
		first := fillUp(table, demand, func(gpu int, _, _ mig.Mask) float64 { return float64(gpu) })
		valued := fillUp(table, demand, func(_ int, free, units mig.Mask) float64 {
			return float64(v.Loss(free, units))*100 + float64(free.Count())
		})
		t.Logf("%s: %.1f %% allocated, %.1f %% at the first place", mix, valued, first)
		if valued < 99 || valued < first {
			t.Errorf("%s: %.1f %% allocated, %.1f %% at the first place", mix, valued, first)
		}
	}
}

// fillUp asks 100 empty GPUs for 1.3 times what they have, and returns how much of them is then allocated.
// Of places with the same cost the one with the highest start is taken.
func fillUp(table *mig.Table, demand mig.Demand, cost func(gpu int, free, units mig.Mask) float64) float64 {
	const gpus = 100
	random := rand.New(rand.NewPCG(3, 4))
	total := 0.0
	for _, n := range demand {
		total += n
	}
	var node [gpus]mig.Occupancy
	used := 0
	for asked := 0; asked < gpus*table.Axis()*13/10; {
		var p mig.Profile
		left := random.Float64() * total
		for _, p = range table.Profiles() {
			if left -= demand[p.ID]; left < 0 {
				break
			}
		}
		asked += p.Size
		best, to, at := 0.0, -1, mig.Place{}
		for g, o := range &node {
			for _, start := range slices.Backward(p.Starts) {
				place := mig.Place{Profile: p.ID, Start: start}
				if !table.Fits(o, place) {
					continue
				}
				units, _ := table.Mask(place)
				if c := cost(g, table.Free(o), units); to < 0 || c < best {
					best, to, at = c, g, place
				}
			}
		}
		if to >= 0 {
			node[to], _ = table.Add(node[to], at)
			used += p.Size
		}
	}
	return 100 * float64(used) / float64(gpus*table.Axis())
}

func BenchmarkNewValues(b *testing.B) {
	for _, model := range []string{"A30", "H100", "RTX PRO 6000"} {
		b.Run(model, func(b *testing.B) {
			table := table(b, model)
			for b.Loop() {
				mig.NewValues(table, nil)
			}
		})
	}
}

func BenchmarkLoss(b *testing.B) {
	table := table(b, "H100")
	v := mig.NewValues(table, nil)
	units, _ := table.Mask(places(b, table, "1g.10gb@6")[0])
	var sum mig.Value
	for b.Loop() {
		sum += v.Loss(table.Full(), units)
	}
	if sum == 0 {
		b.Error("the loss is nothing")
	}
}
