// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mig

import "math/bits"

// tiny is what counts as nothing beside prices between 0 and 1.
const tiny = 1e-9

func lowest(m Mask) int { return bits.TrailingZeros32(uint32(m)) }

// packingPrices are the dual prices of packing the demand for each shape into the fewest GPUs, fractions of a
// packing allowed: a simplex by columns, each made by the best filling at the prices so far when it is needed.
func packingPrices(axis int, shapes []shape) []float64 {
	n := len(shapes)
	basis := make([][]float64, n) // its inverse
	amount := make([]float64, n)
	cost := make([]float64, n)
	for i, s := range shapes {
		basis[i] = make([]float64, n)
		alone := float64(mostOf(s.starts))
		basis[i][i] = 1 / alone
		amount[i] = s.demand / alone
		cost[i] = 1
	}
	prices := make([]float64, n)
	// The bound is never reached by a real demand; it ends what rounding could make a circle.
	for range 50 * (n + 1) {
		for j := range prices {
			prices[j] = 0
			for i := range basis {
				prices[j] += cost[i] * basis[i][j]
			}
		}
		column, price := entering(axis, shapes, prices)
		if column == nil || !pivot(basis, amount, cost, column, price) {
			break
		}
	}
	for j := range prices {
		prices[j] = max(0, prices[j])
	}
	return prices
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

// entering is a column that makes the packing smaller, and its cost: a surplus whose price is below 0, else
// the GPU whose filling is worth more than a GPU. It is nil when there is none.
func entering(axis int, shapes []shape, prices []float64) ([]float64, float64) {
	column := make([]float64, len(shapes))
	for j, p := range prices {
		if p < -tiny {
			column[j] = -1
			return column, 0
		}
	}
	best := filling(axis, shapes, prices)
	m := stretch(0, axis)
	if best[m] <= 1+1e-7 {
		return nil, 0
	}
	for m != 0 {
		value := best[m]
		rest := m & (m - 1)
		if best[rest] >= value {
			m = rest
			continue
		}
		i, u := beginning(shapes, prices, best, m)
		if u == 0 {
			return nil, 0 // impossible: the filling came from some shape
		}
		column[i]++
		m &^= u
	}
	return column, 1
}

// beginning is the shape, and its units, that the best filling of m has at its lowest unit.
func beginning(shapes []shape, prices, best []float64, m Mask) (int, Mask) {
	for i, s := range shapes {
		for _, u := range s.starts {
			if lowest(u) == lowest(m) && m.Has(u) && prices[i]+best[m&^u] >= best[m]-tiny {
				return i, u
			}
		}
	}
	return 0, 0
}

// pivot brings the column into the basis; false when no row bounds it.
func pivot(basis [][]float64, amount, cost, column []float64, price float64) bool {
	direction := make([]float64, len(basis))
	out := -1
	for i := range basis {
		for j := range column {
			direction[i] += basis[i][j] * column[j]
		}
		if direction[i] > tiny && (out < 0 || amount[i]*direction[out] < amount[out]*direction[i]) {
			out = i
		}
	}
	if out < 0 {
		return false
	}
	by := direction[out]
	for j := range basis[out] {
		basis[out][j] /= by
	}
	amount[out] /= by
	cost[out] = price
	for i := range basis {
		if i == out || direction[i] == 0 {
			continue
		}
		for j := range basis[i] {
			basis[i][j] -= direction[i] * basis[out][j]
		}
		amount[i] -= direction[i] * amount[out]
	}
	return true
}
