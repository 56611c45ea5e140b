// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package packing

// little is by how much more there is of each limit than is said, times its place: where two of them run out at once the
// simplex could go in a circle.
const little = 1e-7

// Most places as much as can be within the limits, by columns that are each made when they are needed, and gives the dual
// prices of the limits: how much more one more of each would place. Column is asked, at the prices that the limits have so
// far and with what is placed so far, for a column that places more than it costs: it writes what it takes of each limit
// and gives how much it places, or below 0 when there is none or enough is placed. The prices may be below 0 by what rounding
// does, and are wrong where column ended early.
func Most(limits []float64, column func(prices, takes []float64, placed float64) float64) []float64 {
	rows := len(limits)
	basis := make([][]float64, rows) // its inverse; at first nothing is placed
	cells := make([]float64, rows*rows)
	amount, cost, prices, takes := make([]float64, rows), make([]float64, rows), make([]float64, rows), make([]float64, rows)
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
