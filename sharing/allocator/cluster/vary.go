// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"math"
	"math/bits"
	"slices"
)

const (
	// mixes is how many mixes are looked at, a power of 2.
	mixes = 32
	// spread is how far the number of shares of a size that are there at once is thought to stray from its mean, in roots of
	// that mean. Independent arrivals and lives would give 1.
	spread = 2
)

// variedHoles are the mean of what holes are worth in mixes around the usual one. Where requests leave again, there are
// at each moment some more of one size and fewer of another than usual, and a hole that fits into many packings is then worth
// more than one that has its only use in the usual packing, though the usual mix sees no difference. A placement that is best
// in all of the mixes loses nothing. Expected is how many of a class are there at once, in thousandths.
func variedHoles(classes []Class, expected func(Class) int64) holes {
	there := map[int]float64{}
	for _, c := range classes {
		there[cellsOf(c.Share)] += float64(expected(c)) / 1000
	}
	var sizes []int
	for size := range there {
		sizes = append(sizes, size)
	}
	slices.Sort(sizes)
	mix := slices.Clone(classes)
	sum := holes{}
	for number := range uint(mixes) {
		for i, c := range classes {
			size := cellsOf(c.Share)
			at, _ := slices.BinarySearch(sizes, size)
			stray := spread / math.Sqrt(max(there[size], 1))
			if more(number, at) {
				stray = -stray
			}
			mix[i].Count = int64(float64(expected(c)) * max(0, 1-stray))
		}
		h := newHoles(mix)
		for c := range sum.values {
			sum.sizes[c] += h.sizes[c]
			sum.values[c] += h.values[c]
		}
	}
	for c := range sum.values {
		sum.sizes[c] = (sum.sizes[c] + mixes/2) / mixes
		sum.values[c] = (sum.values[c] + mixes/2) / mixes
	}
	return sum
}

// more says whether there is more of a size than usual in the mix of that number, or else less: more in half of the mixes, and of any
// two of as many sizes as there are mixes, less one, the same in half of them (Walsh functions).
func more(mix uint, size int) bool {
	column := uint(size)%(mixes-1) + 1
	return bits.OnesCount(mix&column)%2 == 1
}
