// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"math"
	"slices"

	"github.com/kerf-gpu/kerf/sharing/packing"
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

// packingPrices are the prices of the sizes (in cells) when the wanted number of each is packed into the fewest GPUs.
func packingPrices(sizes []int, wanted []float64) []float64 {
	alone := make([]int, len(sizes))
	for i, size := range sizes {
		alone[i] = cells / size
	}
	return packing.Prices(wanted, alone, func(prices []float64) ([]float64, float64) { return fullest(sizes, prices) })
}

// fullest is the filling of a GPU that is worth most at the prices: a knapsack.
func fullest(sizes []int, prices []float64) ([]float64, float64) {
	var worth [cells + 1]float64
	var last [cells + 1]int
	for c := 1; c <= cells; c++ {
		worth[c], last[c] = worth[c-1], -1
		for j, size := range sizes {
			if size <= c && worth[c-size]+prices[j] > worth[c]+packing.Tiny {
				worth[c], last[c] = worth[c-size]+prices[j], j
			}
		}
	}
	filling := make([]float64, len(sizes))
	for c := cells; c > 0; {
		if j := last[c]; j >= 0 {
			filling[j]++
			c -= sizes[j]
		} else {
			c--
		}
	}
	return filling, worth[cells]
}
