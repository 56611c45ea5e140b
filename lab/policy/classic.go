// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import "github.com/kerf-gpu/kerf/sharing/allocator/cluster"

// Packing takes a GPU that is shared already, then a free one of a node in use, then one of an empty node. Of several
// nodes it takes the fullest.
type Packing struct{}

// Score implements Policy.
func (Packing) Score(n *cluster.Node, s cluster.Shape) (int64, int) {
	if s.GPUs == 0 {
		return 0, 0
	}
	gpu, tier := cluster.Tightest(n, s), int64(0)
	switch {
	case s.GPUs == 1 && n.GPUs[gpu] < cluster.WholeGPU:
		tier = 2
	case n.Free() < whole(n):
		tier = 1
	}
	return tier*tierStep + leastFree(n), gpu
}

// Clustering keeps requests of one kind (shares, or a number of whole GPUs) together; of several nodes it
// takes the fullest.
type Clustering struct{}

// Score implements Policy.
func (Clustering) Score(n *cluster.Node, s cluster.Shape) (int64, int) {
	if s.GPUs == 0 {
		return 0, 0
	}
	tier := int64(0)
	if cluster.SameKind(n, s) > 0 {
		tier = 1
	}
	return tier*tierStep + leastFree(n), cluster.Tightest(n, s)
}

// tierStep is more than what is free on the largest node.
const tierStep = 1 << 20

func leastFree(n *cluster.Node) int64 { return tierStep - 1 - int64(min(n.Free(), tierStep-1)) }

// Random takes any node and any GPU. It draws again for each decision, from its seed alone.
type Random struct{ state uint64 }

// NewRandom is Random from a seed.
func NewRandom(seed int64) *Random {
	return &Random{state: uint64(seed)} //nolint:gosec // every bit of the seed counts, its sign is none
}

// Draw implements Fresh.
func (r *Random) Draw() { r.state = mix(r.state) }

// Score implements Policy.
func (r *Random) Score(n *cluster.Node, s cluster.Shape) (int64, int) {
	drawn := mix(r.state ^ cluster.ID(n))
	if s.GPUs != 1 {
		return int64(drawn >> 1), 0
	}
	at := drawn % uint64(room(n, s)) //nolint:gosec // the node fits, so the count is above 0
	for g := range n.GPUs {
		if !cluster.HasCapacity(n, g, s) {
			continue
		}
		if at == 0 {
			return int64(drawn >> 1), g
		}
		at--
	}
	return int64(drawn >> 1), 0
}

// mix is splitmix64: a number without pattern for each number.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// whole is what the GPUs of the node have when nothing is taken.
func whole(n *cluster.Node) cluster.Milli { return cluster.Milli(len(n.GPUs)) * cluster.WholeGPU }

// room is how many GPUs of the node have room for the shape.
func room(n *cluster.Node, s cluster.Shape) int {
	fit := 0
	for g := range n.GPUs {
		if cluster.HasCapacity(n, g, s) {
			fit++
		}
	}
	return fit
}
