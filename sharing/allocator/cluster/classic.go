// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

// Packing takes a GPU that is shared already, then a free one of a node in use, then one of an empty node;
// of several nodes the fullest.
type Packing struct{}

// Score implements Policy.
func (Packing) Score(n *Node, s Shape) (int64, int) {
	if s.GPUs == 0 {
		return 0, 0
	}
	gpu, tier := tightestOne(n, s), int64(0)
	switch {
	case s.GPUs == 1 && n.GPUs[gpu] < WholeGPU:
		tier = 2
	case n.Free() < n.whole():
		tier = 1
	}
	return tier*tierStep + leastFree(n), gpu
}

// Clustering keeps requests of one kind (shares, or a number of whole GPUs) together; of several nodes it
// takes the fullest.
type Clustering struct{}

// Score implements Policy.
func (Clustering) Score(n *Node, s Shape) (int64, int) {
	if s.GPUs == 0 {
		return 0, 0
	}
	tier := int64(0)
	if n.kinds[kindOf(s)] > 0 {
		tier = 1
	}
	return tier*tierStep + leastFree(n), tightestOne(n, s)
}

// tierStep is more than what is free on the largest node.
const tierStep = 1 << 20

func leastFree(n *Node) int64 { return tierStep - 1 - int64(min(n.Free(), tierStep-1)) }

// kinds is how many kinds of requests Clustering tells apart: none, shares, and 1, 2, 4, 8 and more GPUs.
const kinds = 6

func kindOf(s Shape) int {
	switch {
	case s.GPUs == 0:
		return 0
	case s.Share < WholeGPU:
		return 1
	case s.GPUs == 1:
		return 2
	case s.GPUs == 2:
		return 3
	case s.GPUs <= 4:
		return 4
	}
	return 5
}

// Random takes any node and any GPU. It draws anew for each decision, from its seed alone.
type Random struct{ state uint64 }

// NewRandom is Random from a seed.
func NewRandom(seed int64) *Random {
	return &Random{state: uint64(seed)} //nolint:gosec // every bit of the seed counts, its sign is none
}

// Draw implements Fresh.
func (r *Random) Draw() { r.state = mix(r.state) }

// Score implements Policy.
func (r *Random) Score(n *Node, s Shape) (int64, int) {
	drawn := mix(r.state ^ n.id)
	if s.GPUs != 1 {
		return int64(drawn >> 1), 0
	}
	at := drawn % uint64(n.count(n.GPUs, s)) //nolint:gosec // the node fits, so the count is above 0
	for g, left := range n.GPUs {
		if !n.room(g, left, s) {
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
