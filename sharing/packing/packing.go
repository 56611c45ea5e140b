// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package packing prices items by how much of a bin each costs when all of them are packed into the fewest bins.
//
// It promises that the prices are those of the best packing in which fractions of bins are allowed, and that equal
// calls give equal prices. What fits into a bin is the caller's to say: shares of a GPU, or MIG instances on one.
package packing

const (
	// Tiny is what counts as nothing beside prices between 0 and 1.
	Tiny = 1e-9
	// gain is how much more than a bin a filling must be worth to count.
	gain = 1e-7
)

// Prices are the dual prices of packing the wanted number of each item into the fewest bins: a simplex by columns, each
// made when it is needed. Alone is how many of each item fill a bin without any other, at least 1. Fill is the filling of
// one bin that is worth most at the prices, as a number of each item, and its worth. The prices lie between 0 and 1.
func Prices(wanted []float64, alone []int, fill func(prices []float64) (filling []float64, worth float64)) []float64 {
	n := len(wanted)
	basis := make([][]float64, n) // its inverse
	amount := make([]float64, n)
	cost := make([]float64, n)
	for i := range wanted {
		basis[i] = make([]float64, n)
		basis[i][i] = 1 / float64(alone[i])
		amount[i] = wanted[i] * basis[i][i]
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
		column, price := entering(prices, fill)
		if column == nil || !pivot(basis, amount, cost, column, price) {
			break
		}
	}
	for j := range prices {
		prices[j] = max(0, prices[j])
	}
	return prices
}

// entering is a column that makes the packing smaller, and its cost: a surplus whose price is below 0, else the bin whose
// filling is worth more than a bin. It is nil when there is none.
func entering(prices []float64, fill func([]float64) ([]float64, float64)) ([]float64, float64) {
	for j, p := range prices {
		if p < -Tiny {
			column := make([]float64, len(prices))
			column[j] = -1
			return column, 0
		}
	}
	column, worth := fill(prices)
	if worth <= 1+gain {
		return nil, 0
	}
	return column, 1
}

// pivot brings the column into the basis; false when no row bounds it.
func pivot(basis [][]float64, amount, cost, column []float64, price float64) bool {
	direction := make([]float64, len(basis))
	out := -1
	for j, n := range column {
		if n == 0 {
			continue // most are
		}
		for i := range basis {
			direction[i] += basis[i][j] * n
		}
	}
	for i := range basis {
		if direction[i] > Tiny && (out < 0 || amount[i]*direction[out] < amount[out]*direction[i]) {
			out = i
		}
	}
	if out < 0 {
		return false
	}
	by := direction[out]
	var some []int // of the row, what is not 0
	for j := range basis[out] {
		if basis[out][j] != 0 {
			basis[out][j] /= by
			some = append(some, j)
		}
	}
	amount[out] /= by
	cost[out] = price
	for i := range basis {
		if i == out || direction[i] == 0 {
			continue
		}
		for _, j := range some {
			basis[i][j] -= direction[i] * basis[out][j]
		}
		amount[i] -= direction[i] * amount[out]
	}
	return true
}
