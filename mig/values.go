// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package mig has the geometry of MIG: possible instances, their placements, and what fits with existing ones. It also
// has the value of the free space for expected pods.
//
// A Table is built from what the driver reports of one GPU. Nothing in this package knows a product: names,
// ids, sizes and the length of the axis vary with GPU and driver. A Table never changes and may be shared.
//
// Free space is counted as the driver counts it. An instance needs its range of memory slices for itself, and compute
// slices and media engines of which the GPU has only so many. The driver also limits the instances of a profile. The
// GPU has as much of each as its largest profile takes. Copy engines are not counted, because instances may share them.
//
// The package does not talk to a driver and decides nothing: package plan does that.
package mig

import (
	"math"
	"math/bits"
	"slices"

	"github.com/kerf-gpu/kerf/sharing/packing"
)

// Demand is how often each profile (id) is expected to be asked for, in any unit. Only the ratios count.
type Demand map[int]float64

// Value is what free room is worth; an empty GPU is worth One.
type Value int64

// One is the value of an empty GPU.
const One Value = 1_000_000

// Values has the value of each set of free memory slices of one GPU model for a demand. It has one number for each
// mask, so that reading one costs nothing. NewValues or Counted create it. It never changes, and may be shared.
//
// The value has two parts. The first is the best filling of the free memory slices, each profile at its price when the
// demand is packed into the fewest GPUs. What belongs to such a packing loses nothing, so it says which holes the
// demand can fill. The second is how many of the places of each profile are left, weighted by demand and size. It keeps
// large profiles possible if the first sees no difference. A value counts places alone. It ignores that a profile may
// be there only once, or needs the only engine of a kind.
type Values struct {
	of     []Value
	axis   int
	shapes []shape
	// counted is true where the shapes' demand is so many requests, and nothing else is known of it.
	counted bool
}

// Of is the value of the free units.
func (v *Values) Of(free Mask) Value {
	if int(free) < len(v.of) {
		return v.of[free]
	}
	return 0
}

// Loss is what an instance on these units takes from the free ones: the smaller, the better the place.
func (v *Values) Loss(free, units Mask) Value { return v.Of(free) - v.Of(free&^units) }

// shape is what profiles that differ only in engines have in common.
type shape struct {
	size   int
	starts []Mask
	demand float64
}

// NewValues values the masks of t for the demand. Profiles that are not in it count nothing; where nothing is,
// all shapes are expected alike.
func NewValues(t *Table, demand Demand) *Values { return newValues(t, shapesOf(t, demand)) }

// supposed is how many requests for each shape are taken for seen before the first one is. With 1 to 3 clusters get
// equally full but for chance.
const supposed = 2

// Counted returns the values of t's masks for the demand in seen, which may be empty. Each shape has a small extra
// count, so that shapes without requests also have a value.
func Counted(t *Table, seen Demand) *Values {
	shapes := shapesOf(t, nil)
	for i := range shapes {
		shapes[i].demand = supposed
	}
	for i, p := range t.profiles {
		at := slices.IndexFunc(shapes, func(s shape) bool {
			return s.size == p.Size &&
				slices.Equal(s.starts, t.masks[i])
		})
		shapes[at].demand += max(0, seen[p.ID])
	}
	v := newValues(t, shapes)
	v.counted = true
	return v
}

func newValues(t *Table, shapes []shape) *Values {
	fill := make([]float64, 1<<t.axis)
	for i := range shapes {
		expected := shapes[i].demand
		for _, part := range []float64{1 - doubt, 1 + doubt} {
			shapes[i].demand = expected * part
			for free, worth := range filling(t.axis, shapes, packingPrices(t.axis, shapes)) {
				fill[free] += worth
			}
		}
		shapes[i].demand = expected
	}
	places := placesLeft(t.axis, shapes)
	v := &Values{of: make([]Value, len(fill)), axis: t.axis, shapes: shapes}
	top := len(fill) - 1
	for free := range fill {
		part := fillWeight*ratio(fill[free], fill[top]) + (1-fillWeight)*ratio(places[free], places[top])
		v.of[free] = Value(math.Round(part * float64(One)))
	}
	return v
}

// doubt is by how much the demand for a profile may differ from what is expected, as a part of it. The prices of
// one exact demand jump where two packings are equally good; the mean over demands near it does not.
const doubt = 0.2

// fillWeight is the part of the packing's prices in a value. With less of them small holes stay. With more, the large
// profiles are lost if prices are equal. Between 0.92 and 0.98 filling a cluster shows no difference.
const fillWeight = 0.95

func ratio(a, b float64) float64 {
	if b <= 0 {
		return 0
	}
	return a / b
}

func shapesOf(t *Table, demand Demand) []shape {
	var list []shape
	total := 0.0
next:
	for i, p := range t.profiles {
		wanted := max(0, demand[p.ID])
		total += wanted
		for j := range list {
			if list[j].size == p.Size && slices.Equal(list[j].starts, t.masks[i]) {
				list[j].demand += wanted
				continue next
			}
		}
		list = append(list, shape{p.Size, t.masks[i], wanted})
	}
	if total > 0 {
		kept := list[:0]
		for _, s := range list {
			if s.demand > 0 {
				kept = append(kept, s)
			}
		}
		return kept
	}
	for i := range list {
		list[i].demand = 1
	}
	return list
}

// filling is, for each mask, the best sum of prices that places in it can have.
func filling(axis int, shapes []shape, prices []float64) []float64 {
	at := make([][]int, axis) // shapes that may begin at each unit
	units := make([][]Mask, axis)
	for i, s := range shapes {
		for _, m := range s.starts {
			first := lowest(m)
			at[first] = append(at[first], i)
			units[first] = append(units[first], m)
		}
	}
	best := make([]float64, 1<<axis)
	for free := 1; free < len(best); free++ {
		m := Mask(free) // #nosec G115 -- below 2^MaxAxis
		first := lowest(m)
		best[free] = best[free&(free-1)] // the lowest unit stays empty
		for k, i := range at[first] {
			if u := units[first][k]; m.Has(u) {
				best[free] = max(best[free], prices[i]+best[m&^u])
			}
		}
	}
	return best
}

// placesLeft is, for each mask, the part of each shape's places that it has, weighted by demand and size.
func placesLeft(axis int, shapes []shape) []float64 {
	left := make([]float64, 1<<axis)
	for _, s := range shapes {
		each := s.demand * float64(s.size) / float64(len(s.starts))
		for free := range left {
			for _, m := range s.starts {
				if Mask(free).Has(m) { // #nosec G115 -- below 2^MaxAxis
					left[free] += each
				}
			}
		}
	}
	return left
}

func lowest(m Mask) int { return bits.TrailingZeros32(uint32(m)) }

// packingPrices are the prices of the shapes when the demand for each is packed into the fewest GPUs.
func packingPrices(axis int, shapes []shape) []float64 {
	wanted, alone := make([]float64, len(shapes)), make([]int, len(shapes))
	for i, s := range shapes {
		wanted[i], alone[i] = s.demand, mostOf(s.starts)
	}
	return packing.Prices(wanted, alone,
		func(prices []float64) ([]float64, float64) { return fullest(axis, shapes, prices) })
}

// mostOf is how many of the places, in order of their starts, do not overlap.
func mostOf(starts []Mask) int {
	var taken Mask
	n := 0
	for _, m := range starts {
		if taken&m == 0 {
			taken |= m
			n++
		}
	}
	return n
}

// fullest is the filling of a GPU that is worth most at the prices.
func fullest(axis int, shapes []shape, prices []float64) ([]float64, float64) {
	best := filling(axis, shapes, prices)
	m := stretch(0, axis)
	worth := best[m]
	counts := make([]float64, len(shapes))
	for m != 0 {
		rest := m & (m - 1)
		if best[rest] >= best[m] {
			m = rest
			continue
		}
		i, u := beginning(shapes, prices, best, m)
		if u == 0 {
			return nil, 0 // impossible: the filling came from some shape
		}
		counts[i]++
		m &^= u
	}
	return counts, worth
}

// beginning is the shape, and its units, that the best filling of m has at its lowest unit.
func beginning(shapes []shape, prices, best []float64, m Mask) (int, Mask) {
	for i, s := range shapes {
		for _, u := range s.starts {
			if lowest(u) == lowest(m) && m.Has(u) && prices[i]+best[m&^u] >= best[m]-packing.Tiny {
				return i, u
			}
		}
	}
	return 0, 0
}
