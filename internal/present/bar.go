// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package present

import (
	"math/bits"
	"strings"
)

// apportion shares width cells among amounts in proportion, so that the cells add up to width and every
// amount that is not zero has a cell of its own when there are enough. The sum of amounts fits in 64 bits.
// It is deterministic: where two have the same right to a cell, the first gets it.
func apportion(amounts []uint64, width int) []int {
	cells := make([]int, len(amounts))
	var total uint64
	for _, a := range amounts {
		total += a
	}
	if total == 0 || width <= 0 {
		return cells
	}
	given := 0
	for i, a := range amounts {
		hi, lo := bits.Mul64(a, uint64(width))
		q, _ := bits.Div64(hi, lo, total) // a <= total, so the quotient is at most width
		cells[i] = int(q)                 //nolint:gosec // at most width
		if cells[i] == 0 && a > 0 {
			cells[i] = 1
		}
		given += cells[i]
	}
	for ; given > width; given-- {
		cells[richest(cells)]--
	}
	for ; given < width; given++ {
		cells[neediest(cells, amounts, total, width)]++
	}
	return cells
}

// richest is the index of the most cells, the last of equals.
func richest(cells []int) int {
	best := 0
	for i, c := range cells {
		if c >= cells[best] {
			best = i
		}
	}
	return best
}

// neediest is the index of the amount whose exact share is furthest above its cells, the first of equals.
func neediest(cells []int, amounts []uint64, total uint64, width int) int {
	best, most := 0, -float64(width)
	for i, a := range amounts {
		if a == 0 {
			continue
		}
		if lack := float64(a)/float64(total)*float64(width) - float64(cells[i]); lack > most {
			best, most = i, lack
		}
	}
	return best
}

// meter is a small bar of n cells that is used/total full, in eighths of a cell. Something used shows at
// least an eighth, and only all of it shows as full.
func meter(used *uint64, total uint64, n int) string {
	if used == nil || total == 0 {
		return strings.Repeat("?", n)
	}
	u := min(*used, total)
	hi, lo := bits.Mul64(u, uint64(n)*8) //nolint:gosec // a handful of cells
	q, _ := bits.Div64(hi, lo, total)
	eighths := int(q) //nolint:gosec // at most 8n
	if eighths == 0 && u > 0 {
		eighths = 1
	}
	partial := []string{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"}[eighths%8]
	return pad(strings.Repeat("█", eighths/8)+partial, n)
}
