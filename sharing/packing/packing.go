// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package packing prices items by how much of a bin each costs when all of them are packed into the fewest bins.
//
// It promises that the prices are those of the best packing in which fractions of bins are allowed, and that equal
// calls give equal prices. What fits into a bin is the caller's to say: shares of a GPU, or MIG instances on one.
package packing

const (
	// Tiny is what counts as nothing compared with prices between 0 and 1.
	Tiny = 1e-9
	// gain is how much more than a bin a filling must be worth to count.
	gain = 1e-7
)

// Prices are the dual prices of packing the wanted number of each item into the fewest bins. It is a simplex by
// columns, each made when it is needed. Alone is how many of each item fill a bin without any other, at least 1. Fill
// is the best filling of one bin at the prices, as a number of each item, and its worth. The prices lie between 0 and
// 1.
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

// entering is a column that makes the packing smaller, and its cost. It is a surplus whose price is below 0, else the
// bin whose filling is worth more than a bin. It is nil when there is none.
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

// little is by how much each limit is larger than its value, times its place. If two of them ended at once, the simplex
// could go in a circle.
const little = 1e-7

// Maximize places as much as possible within the limits, by columns that are each made when they are needed. It returns
// the dual prices of the limits: how much more one more of each would place. At the current prices and with the placed
// amount, Column is asked for a column that places more than it costs. It writes what it takes of each limit and
// returns how much it places, or below 0 when there is none or enough is placed. The prices may be below 0 by rounding,
// and are wrong if column ended early.
func Maximize(limits []float64, column func(prices, takes []float64, placed float64) float64) []float64 {
	rows := len(limits)
	basis := make([][]float64, rows) // its inverse; at first nothing is placed
	cells := make([]float64, rows*rows)
	amount, cost, prices, takes := make([]float64, rows), make([]float64, rows), make([]float64, rows),
		make([]float64, rows)
	for i, limit := range limits {
		basis[i], cells = cells[:rows:rows], cells[rows:]
		basis[i][i] = 1
		amount[i] = limit + little*float64(i+1)
	}
	// The bound is never reached by a real demand; it ends what rounding could make a circle.
	for range 50 * (rows + 1) {
		clear(prices)
		placed := 0.0
		for i := range basis {
			if cost[i] != 0 {
				placed += cost[i] * amount[i]
				for j, b := range basis[i] {
					prices[j] += cost[i] * b
				}
			}
		}
		clear(takes)
		places := 0.0
		if j := below(prices); j >= 0 {
			takes[j] = 1 // less of it should be used
		} else if places = column(prices, takes, placed); places < 0 {
			break
		}
		if !pivot(basis, amount, cost, takes, places) {
			break
		}
	}
	return prices
}

// below is the first price below nothing, or -1.
func below(prices []float64) int {
	for j, p := range prices {
		if p < -Tiny {
			return j
		}
	}
	return -1
}

// Fillings are the best fillings of bins of several kinds at some prices.
type Fillings interface {
	// Value is what that of a kind is worth.
	Value(kind int) float64
	// Of is that of a kind, as a number of each item.
	Of(kind int) []float64
}

// Scarce are the dual prices of placing as much as possible of the wanted number of each item in so many bins of each
// kind. A price is how much of the placed size one more place for an item brings. An item of which all are placed in
// any case costs nothing, one that waits for a place its size. Fill is the best filling of each kind of bin at the
// prices. The prices lie between 0 and the sizes.
func Scarce(bins, wanted, sizes []float64, fill func(prices []float64) Fillings) []float64 {
	limits := append(append(make([]float64, 0, len(bins)+len(wanted)), bins...), wanted...)
	prices := make([]float64, len(wanted))
	duals := Maximize(limits, func(duals, takes []float64, _ float64) float64 {
		price(prices, sizes, duals[len(bins):])
		return fullest(takes, duals, len(bins), sizes, fill(prices))
	})
	price(prices, sizes, duals[len(bins):])
	return prices
}

// price writes what a place for each item brings: its size, less what one more of the item would.
func price(prices, sizes, duals []float64) {
	for i := range prices {
		prices[i] = min(max(0, sizes[i]-duals[i]), sizes[i])
	}
}

// fullest writes the bin whose filling is worth most beyond what the bin costs. It gives what that places, below 0 when
// there is no such bin.
func fullest(takes, duals []float64, bins int, sizes []float64, best Fillings) float64 {
	kind, most := -1, gain
	for k := range bins {
		if more := best.Value(k) - duals[k]; more > most {
			kind, most = k, more
		}
	}
	if kind < 0 {
		return -1
	}
	takes[kind] = 1
	placed := 0.0
	for i, n := range best.Of(kind) {
		takes[bins+i] = n
		placed += n * sizes[i]
	}
	return placed
}
