// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package packing

// Fillings are the best fillings of bins of several kinds at some prices.
type Fillings interface {
	// Worth is what that of a kind is worth.
	Worth(kind int) float64
	// Of is that of a kind, as a number of each item.
	Of(kind int) []float64
}

// little is by how much more there is of each bin and item than is said, times its place: where two of them run out at once
// the simplex could go in a circle.
const little = 1e-7

// Scarce are the dual prices of placing as much as can be of the wanted number of each item in so many bins of each kind: how
// much of the size that is placed one more place for an item brings. An item of which all are placed whatever happens costs
// nothing, one that waits for room its size. Fill is the best filling of each kind of bin at the prices. The prices lie
// between 0 and the sizes.
func Scarce(bins, wanted, sizes []float64, fill func(prices []float64) Fillings) []float64 {
	rows := len(bins) + len(wanted)
	basis := make([][]float64, rows) // its inverse; at first nothing is placed
	cells := make([]float64, rows*rows)
	amount, cost, duals, column := make([]float64, rows), make([]float64, rows), make([]float64, rows), make([]float64, rows)
	for i := range rows {
		basis[i], cells = cells[:rows:rows], cells[rows:]
		basis[i][i] = 1
		if i < len(bins) {
			amount[i] = bins[i]
		} else {
			amount[i] = wanted[i-len(bins)]
		}
		amount[i] += little * float64(i+1)
	}
	prices := make([]float64, len(wanted))
	// The bound is never reached by a real demand; it ends what rounding could make a circle.
	for range 50 * (rows + 1) {
		clear(duals)
		for i := range basis {
			if cost[i] != 0 {
				for j, b := range basis[i] {
					duals[j] += cost[i] * b
				}
			}
		}
		for i := range prices {
			prices[i] = min(max(0, sizes[i]-duals[len(bins)+i]), sizes[i])
		}
		clear(column)
		placed := use(column, duals, len(bins), sizes, prices, fill)
		if placed < 0 || !pivot(basis, amount, cost, column, placed) {
			break
		}
	}
	return prices
}

// use writes a column that places more: bins or items of which less should be used, else the bin whose filling is worth most
// beyond what the bin costs. It gives what the column places, below 0 when there is no such column.
func use(column, duals []float64, bins int, sizes, prices []float64, fill func(prices []float64) Fillings) float64 {
	for j, d := range duals {
		if d < -Tiny {
			column[j] = 1
			return 0
		}
	}
	best := fill(prices)
	kind, most := -1, gain
	for k := range bins {
		if more := best.Worth(k) - duals[k]; more > most {
			kind, most = k, more
		}
	}
	if kind < 0 {
		return -1
	}
	column[kind] = 1
	placed := 0.0
	for i, n := range best.Of(kind) {
		column[bins+i] = n
		placed += n * sizes[i]
	}
	return placed
}
