// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"math/bits"

	"github.com/kerf-gpu/kerf/sharing/packing"
)

func lowest(m Mask) int { return bits.TrailingZeros32(uint32(m)) }

// packingPrices are the prices of the shapes when the demand for each is packed into the fewest GPUs.
func packingPrices(axis int, shapes []shape) []float64 {
	wanted, alone := make([]float64, len(shapes)), make([]int, len(shapes))
	for i, s := range shapes {
		wanted[i], alone[i] = s.demand, mostOf(s.starts)
	}
	return packing.Prices(wanted, alone, func(prices []float64) ([]float64, float64) { return fullest(axis, shapes, prices) })
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
