// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"maps"
	"math"
	"slices"

	"github.com/kerf-gpu/kerf/sharing/packing"
)

// FreeCapacity is how many GPUs have which units free.
type FreeCapacity map[Mask]int

// draws is over how many demands In takes the mean: a prime of which the powers of 3 meet each number below it. With 5
// clusters get a little less full, with 17 no fuller.
const draws = 7

// usualWeight is the part of the usual values in those for a room. The prices in a room are often equal; from a
// fiftieth to a tenth there is no difference.
const usualWeight = 0.05

// In is the values for the same demand, given how many GPUs have which memory slices free. It ends when all that is
// free was requested once. The usual values price the profiles as if they were packed into empty GPUs. Here each costs
// what its last place is worth in the free space. Of two half GPUs for the same profile the second is worth less. An
// empty GPU is worth as much as the expected profiles that need one. The demand is known but for chance, so the prices
// are the mean over possible demands. If they have no value, the usual values count.
//
// An empty GPU is worth One at most, and less if more are left than are needed. With few GPUs the values change with
// each instance, with many hardly. If only counts show the demand, it may differ as much as so few requests allow.
// Three requests of a profile do not show whether thirty or ninety come.
func (v *Values) In(room FreeCapacity) *Values {
	f := newFiller(v.shapes, room)
	bins, units := make([]float64, len(f.bins)), 0.0
	for k, at := range f.bins {
		bins[k] = float64(room[f.masks[at]])
		units += bins[k] * float64(f.masks[at].Count())
	}
	sizes, wanted, each := make([]float64, len(v.shapes)), make([]float64, len(v.shapes)), 0.0
	for i, s := range v.shapes {
		sizes[i], each = float64(s.size), each+s.demand*float64(s.size)
	}
	unsure := func(shape) float64 { return 0 }
	if v.counted {
		unsure = func(s shape) float64 { return 1 / s.demand }
	}
	fill := make([]float64, len(v.of))
	for draw := range draws {
		asked := 0.0
		for i, step := 0, 1; i < len(v.shapes); i, step = i+1, step*3%draws {
			s := v.shapes[i]
			wanted[i] = notExceeded(s.demand*units/each, unsure(s), (float64(draw*step%draws)+0.5)/draws)
			asked += wanted[i] * sizes[i]
		}
		for i := range wanted {
			wanted[i] *= ratio(units, asked)
		}
		for free, worth := range filling(v.axis, v.shapes, packing.Scarce(bins, wanted, sizes, f.fill)) {
			fill[free] += worth / draws
		}
	}
	out := &Values{of: make([]Value, len(v.of)), axis: v.axis, shapes: v.shapes}
	for free, usual := range v.of {
		part := (1-usualWeight)*fill[free]/float64(v.axis)*float64(One) + usualWeight*float64(usual)
		out.of[free] = Value(math.Round(part))
	}
	return out
}

// manyWanted is from where on a number is taken for one of a distribution that has no steps.
const manyWanted = 64

// notExceeded is the number that is not exceeded with the probability, if so many are expected: a Poisson number if
// that is known. Unsure is the square of the relative error of the expected number. The mean then varies by chance (a
// gamma number), and the number is a negative binomial one.
func notExceeded(expected, unsure, probability float64) float64 {
	if expected > manyWanted {
		z := math.Sqrt2 * math.Erfinv(2*probability-1)
		if unsure == 0 {
			return math.Round(expected + math.Sqrt(expected)*z)
		}
		spread := 1/expected + unsure // the cube root of a gamma number is nearly a normal one (Wilson and Hilferty)
		return math.Round(expected * math.Pow(max(0, 1-spread/9+math.Sqrt(spread)/3*z), 3))
	}
	n, each := 0.0, math.Exp(-expected)
	if unsure > 0 {
		each = math.Exp(-math.Log1p(expected*unsure) / unsure)
	}
	for below := each; below < probability && n < 4*manyWanted; below += each {
		each *= expected * (1 + n*unsure) / (1 + expected*unsure) / (n + 1)
		n++
	}
	return n
}

// filler finds the best fillings of the masks of a room, at prices that change. It looks at those masks alone that come
// up while they are filled from their lowest unit.
type filler struct {
	shapes []shape
	// masks come in ascending order, so that what is left of one stands before it; bins are those of the room.
	masks []Mask
	bins  []int
	// rest is where the mask without its lowest unit stands, ways are what can begin at that unit.
	rest   []int
	ways   [][]way
	prices []float64
	best   []float64
}

// way is a shape, and where the mask stands that it leaves.
type way struct{ shape, left int }

func newFiller(shapes []shape, room FreeCapacity) *filler {
	known := map[Mask]bool{0: true}
	var visit func(m Mask)
	visit = func(m Mask) {
		if known[m] {
			return
		}
		known[m] = true
		visit(m & (m - 1))
		beginnings(shapes, m, func(_ int, u Mask) { visit(m &^ u) })
	}
	for m, n := range room {
		if n > 0 {
			visit(m)
		}
	}
	f := &filler{shapes: shapes, masks: slices.Sorted(maps.Keys(known))}
	at := make(map[Mask]int, len(f.masks))
	for i, m := range f.masks {
		at[m] = i
		var ways []way
		beginnings(shapes, m, func(s int, u Mask) { ways = append(ways, way{s, at[m&^u]}) })
		f.rest, f.ways = append(f.rest, at[m&(m-1)]), append(f.ways, ways)
		if m != 0 && room[m] > 0 {
			f.bins = append(f.bins, i)
		}
	}
	f.best = make([]float64, len(f.masks))
	return f
}

// beginnings calls visit for each shape that fits with its first unit at the lowest of the mask, and the units of it.
func beginnings(shapes []shape, m Mask, visit func(shape int, units Mask)) {
	if m == 0 {
		return
	}
	for i, s := range shapes {
		for _, u := range s.starts {
			if lowest(u) == lowest(m) && m.Has(u) {
				visit(i, u)
			}
		}
	}
}

func (f *filler) fill(prices []float64) packing.Fillings {
	f.prices = prices
	for i := 1; i < len(f.best); i++ {
		best := f.best[f.rest[i]]
		for _, w := range f.ways[i] {
			best = max(best, prices[w.shape]+f.best[w.left])
		}
		f.best[i] = best
	}
	return f
}

// Value implements packing.Fillings.
func (f *filler) Value(kind int) float64 { return f.best[f.bins[kind]] }

// Of implements packing.Fillings. A unit that nothing is worth to begin at stays empty.
func (f *filler) Of(kind int) []float64 {
	counts := make([]float64, len(f.shapes))
	for i := f.bins[kind]; i > 0; {
		next := f.rest[i]
		if f.best[next] < f.best[i] {
			for _, w := range f.ways[i] {
				if f.prices[w.shape]+f.best[w.left] >= f.best[i] {
					counts[w.shape]++
					next = w.left
					break
				}
			}
		}
		i = next
	}
	return counts
}
