// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import "math"

// FGD is fragmentation gradient descent: the node whose fragments grow least. Its score has the hundred
// steps of the published one; the steps matter, since ties then fill the first nodes first.
type FGD struct {
	workload Workload
	steps    [101]int64
}

// NewFGD is FGD for a workload.
func NewFGD(w Workload) *FGD {
	f := &FGD{workload: w}
	for k := 1; k < 100; k++ {
		f.steps[k] = int64(math.Ceil(math.Log(float64(k)/float64(100-k)) * 1e6))
	}
	return f
}

// Score implements Policy.
func (f *FGD) Score(n *Node, s Shape) (int64, int) {
	before := f.workload.Fragments(n)
	return each(n, s, func(gpus []Milli, _ int) int64 {
		gain := (before - f.workload.fragments(n, n.CPU-s.CPU, gpus)) * 1000
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

// maxGPUs is how many GPUs a node can have before trying a placement makes garbage.
const maxGPUs = 16

// each tries every GPU of a one-GPU request, or the tightest of a request for several, and gives the best.
// GPUs with equal room answer alike, so only the first of them is tried.
func each(n *Node, s Shape, score func(after []Milli, gpu int) int64) (int64, int) {
	var room [maxGPUs]Milli
	after := append(room[:0], n.GPUs...)
	if s.GPUs != 1 {
		for _, g := range n.chosen(s) {
			after[g] -= s.Share
		}
		return score(after, 0), 0
	}
	best, at := int64(0), -1
	for g, left := range n.GPUs {
		if n.alike(g) || !n.room(g, left, s) {
			continue
		}
		after[g] = left - s.Share
		if v := score(after, g); at < 0 || v > best {
			best, at = v, g
		}
		after[g] = left
	}
	return best, at
}
