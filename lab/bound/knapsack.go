// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package bound

import (
	"slices"

	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
)

// knapsack finds what is worth most on one GPU. Its cells are the greatest step that all shares are multiples of, so
// that nothing is rounded.
type knapsack struct {
	// shares are those that there are, in cells, ascending; at has the index of each, by thousandths.
	shares []int
	at     map[int64]int
	worth  []float64
	last   []int
}

func newKnapsack(items []item) knapsack {
	step := int64(cluster.WholeGPU)
	k := knapsack{at: map[int64]int{}}
	for _, it := range items {
		for _, share := range it.share {
			if share > 0 {
				k.at[share] = 0
				step = divisor(step, share)
			}
		}
	}
	for share := range k.at {
		k.shares = append(k.shares, int(share/step))
	}
	slices.Sort(k.shares)
	for i, cells := range k.shares {
		k.at[int64(cells)*step] = i
	}
	cells := int(int64(cluster.WholeGPU) / step)
	k.worth, k.last = make([]float64, cells+1), make([]int, cells+1)
	return k
}

// fill gives the most that fits on a GPU is worth when each share is worth that much; those worth nothing are left out.
func (k *knapsack) fill(worth []float64) float64 {
	for c := 1; c < len(k.worth); c++ {
		k.worth[c], k.last[c] = k.worth[c-1], -1
		for i, cells := range k.shares {
			if cells > c {
				break
			}
			if worth[i] > 0 && k.worth[c-cells]+worth[i] > k.worth[c] {
				k.worth[c], k.last[c] = k.worth[c-cells]+worth[i], i
			}
		}
	}
	return k.worth[len(k.worth)-1]
}

// each calls f with each share that the last fill has on the GPU.
func (k *knapsack) each(f func(share int)) {
	for c := len(k.worth) - 1; c > 0; {
		if i := k.last[c]; i >= 0 {
			f(i)
			c -= k.shares[i]
		} else {
			c--
		}
	}
}

func divisor(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
