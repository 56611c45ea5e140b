// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"math"
	"slices"
)

// cell is the step of sizes in holes, and cells how many a GPU has.
const (
	cell  = 10
	cells = int(WholeGPU / cell)
)

// holes says what a hole of each size is worth, in thousandths of a GPU: the best filling by the usual shares,
// each at the price that it has when all of them are packed into the fewest GPUs. A placement that belongs to
// such a packing loses nothing.
type holes struct {
	sizes  [cells + 1]int64
	values [cells + 1]int64
}

func newHoles(classes []Class) holes {
	demand := map[int]float64{cells: 1}
	for _, c := range classes {
		if c.GPUs == 1 && c.Share > 0 && c.Share <= WholeGPU {
			demand[cellsOf(c.Share)] += float64(c.Count)
		}
	}
	items := make([]int, 0, len(demand))
	for size := range demand {
		items = append(items, size)
	}
	slices.Sort(items)
	wanted := make([]float64, len(items))
	for i, size := range items {
		wanted[i] = demand[size]
	}
	prices := packingPrices(items, wanted)
	h := holes{}
	for i, size := range items {
		h.sizes[size] = int64(math.Round(prices[i] * 1000))
	}
	for c := 1; c <= cells; c++ {
		h.values[c] = h.values[c-1]
		for _, size := range items {
			if size <= c {
				h.values[c] = max(h.values[c], h.values[c-size]+h.sizes[size])
			}
		}
	}
	return h
}

// cellsOf rounds up: a share must fit where it is thought to.
func cellsOf(share Milli) int { return int((share + cell - 1) / cell) }

func (h *holes) value(left Milli) int64 { return h.values[left/cell] }
func (h *holes) size(share Milli) int64 { return h.sizes[cellsOf(share)] }

// tiny is what counts as nothing beside prices between 0 and 1.
const tiny = 1e-9

// packingPrices are the dual prices of packing the wanted number of each size (in cells) into the fewest
// GPUs, fractions of a packing allowed: a simplex whose columns are made by a knapsack when they are needed.
func packingPrices(sizes []int, wanted []float64) []float64 {
	n := len(sizes)
	inverse := make([][]float64, n)
	amount := make([]float64, n)
	cost := make([]float64, n)
	for i, size := range sizes {
		inverse[i] = make([]float64, n)
		inverse[i][i] = 1 / float64(cells/size)
		amount[i] = wanted[i] * inverse[i][i]
		cost[i] = 1
	}
	prices := make([]float64, n)
	// The bound is never reached by a real mix; it ends what rounding could make a circle.
	for range 50 * (n + 1) {
		for j := range prices {
			prices[j] = 0
			for i := range inverse {
				prices[j] += cost[i] * inverse[i][j]
			}
		}
		column, price := entering(sizes, prices)
		if column == nil || !pivot(inverse, amount, cost, column, price) {
			break
		}
	}
	for j := range prices {
		prices[j] = max(0, prices[j])
	}
	return prices
}

// entering is a column that makes the packing smaller, and its cost: a surplus whose price is below 0, else
// the GPU whose filling is worth more than a GPU. It is nil when there is none.
func entering(sizes []int, prices []float64) ([]float64, float64) {
	column := make([]float64, len(sizes))
	for j, p := range prices {
		if p < -tiny {
			column[j] = -1
			return column, 0
		}
	}
	var worth [cells + 1]float64
	var last [cells + 1]int
	for c := 1; c <= cells; c++ {
		worth[c], last[c] = worth[c-1], -1
		for j, size := range sizes {
			if size <= c && worth[c-size]+prices[j] > worth[c]+tiny {
				worth[c], last[c] = worth[c-size]+prices[j], j
			}
		}
	}
	if worth[cells] <= 1+1e-7 {
		return nil, 0
	}
	for c := cells; c > 0; {
		if j := last[c]; j >= 0 {
			column[j]++
			c -= sizes[j]
		} else {
			c--
		}
	}
	return column, 1
}

// pivot brings the column into the basis; false when no row bounds it.
func pivot(inverse [][]float64, amount, cost, column []float64, price float64) bool {
	n := len(inverse)
	direction := make([]float64, n)
	out := -1
	for i := range inverse {
		for j := range column {
			direction[i] += inverse[i][j] * column[j]
		}
		if direction[i] > tiny && (out < 0 || amount[i]*direction[out] < amount[out]*direction[i]) {
			out = i
		}
	}
	if out < 0 {
		return false
	}
	by := direction[out]
	for j := range inverse[out] {
		inverse[out][j] /= by
	}
	amount[out] /= by
	cost[out] = price
	for i := range inverse {
		if i == out || direction[i] == 0 {
			continue
		}
		for j := range inverse[i] {
			inverse[i][j] -= direction[i] * inverse[out][j]
		}
		amount[i] -= direction[i] * amount[out]
	}
	return true
}
