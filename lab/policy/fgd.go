// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"math"

	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
)

// FGD is fragmentation gradient descent: the node whose fragmentation grows least. Its score has the hundred steps of
// the published one; the steps matter, because ties then fill the first nodes first.
type FGD struct {
	workload cluster.Workload
	steps    [101]int64
}

// NewFGD is FGD for a workload.
func NewFGD(w cluster.Workload) *FGD {
	f := &FGD{workload: w}
	for k := 1; k < 100; k++ {
		f.steps[k] = int64(math.Ceil(math.Log(float64(k)/float64(100-k)) * 1e6))
	}
	return f
}

// Score implements Policy.
func (f *FGD) Score(n *cluster.Node, s cluster.Shape) (int64, int) {
	before := f.workload.Fragmentation(n)
	return cluster.Each(n, s, func(gpus []cluster.Milli, _ int) int64 {
		gain := (before - f.workload.FragmentationIf(n, n.CPU-s.CPU, gpus)) * 1000
		low, high := 0, 99
		for low < high {
			mid := (low + high + 1) / 2
			if gain >= f.steps[mid]*f.workload.Weight() {
				low = mid
			} else {
				high = mid - 1
			}
		}
		return int64(low)
	})
}
