// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"math"
	"math/rand/v2"
	"slices"
)

const (
	// mixes is how many random mixes are looked at: with more, the values hardly move.
	mixes = 32
	// spread is how far the number of requests of a class that are there at once is thought to stray from its mean, in roots of
	// that mean. Independent arrivals and lives would give 1.
	spread = 2
)

// variedHoles are the mean of what holes are worth in mixes around the usual one. Where requests leave again, there are
// at each moment some more of one size and fewer of another than usual, and a hole that fits into many packings is then worth more than one
// that has its only use in the usual packing, though the usual mix sees no difference. A placement that is best in all of the
// mixes loses nothing. Expected is how many of a class are there at once, in thousandths. Equal classes give equal values.
func variedHoles(classes []Class, expected func(Class) int64) holes {
	r := rand.New(rand.NewPCG(mixes, spread)) //nolint:gosec // it draws mixes, and no secrets
	mix := slices.Clone(classes)
	sum := holes{}
	for range mixes {
		for i, class := range classes {
			mean := float64(expected(class)) / 1000
			mix[i].Count = int64(1000 * max(0, mean+spread*math.Sqrt(mean)*r.NormFloat64()))
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
