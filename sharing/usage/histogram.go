// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"maps"
	"math"
	"slices"
)

const (
	// step is the width of a bucket in percent, and most the bound of the one that has all that is more.
	step = 5
	most = 1000
)

// Histogram has seconds by upper bounds in percent: multiples of 5 up to 1000; 0 is nothing at all.
type Histogram map[int]float64

func (h Histogram) add(percent, seconds float64) {
	h[bound(percent)] += seconds
}

func bound(percent float64) int {
	if percent >= most {
		return most
	}
	return step * int(math.Ceil(max(percent, 0)/step))
}

// Merge adds another's seconds.
func (h Histogram) Merge(o Histogram) {
	for b, s := range o {
		h[b] += s
	}
}

// Seconds is how many there are in all.
func (h Histogram) Seconds() (sum float64) {
	for _, s := range h {
		sum += s
	}
	return sum
}

// Quantile is the bound below or at which the part q of the time was; 0 without any.
func (h Histogram) Quantile(q float64) int {
	want, sum := q*h.Seconds(), 0.0
	for _, b := range slices.Sorted(maps.Keys(h)) {
		if sum += h[b]; sum >= want && h[b] > 0 {
			return b
		}
	}
	return 0
}
