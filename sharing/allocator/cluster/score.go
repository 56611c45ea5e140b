// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import "github.com/kerf-gpu/kerf/sharing"

// Spread takes the node with the most GPU left, and on it the emptiest GPU.
type Spread struct{}

// Score implements Policy.
func (Spread) Score(n *Node, s Shape) (int64, int) {
	return int64(n.Free() - s.Demand()), Emptiest(n, s)
}

// maxGPUs is how many GPUs a node can have before trying a placement makes garbage.
const maxGPUs = 16

// Each tries every GPU of a one-GPU request, or the tightest of a request for several, and gives the best.
// GPUs with equal room answer alike, so only the first of them is tried.
func Each(n *Node, s Shape, score func(after []Milli, gpu int) int64) (int64, int) {
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

// Tightest is the GPU with the least left that has room; 0 for a request that is not of one GPU.
func Tightest(n *Node, s Shape) int {
	if s.GPUs != 1 {
		return 0
	}
	at := -1
	for g, left := range n.GPUs {
		if n.room(g, left, s) && (at < 0 || left < n.GPUs[at]) {
			at = g
		}
	}
	return at
}

// Emptiest is the GPU with the most left that has room; 0 for a request that is not of one GPU.
func Emptiest(n *Node, s Shape) int {
	if s.GPUs != 1 {
		return 0
	}
	gpu := -1
	for g, left := range n.GPUs {
		if n.room(g, left, s) && (gpu < 0 || left > n.GPUs[gpu]) {
			gpu = g
		}
	}
	return gpu
}

// HasRoom is whether the GPU takes what the shape, as the node books it, asks for.
func HasRoom(n *Node, gpu int, s Shape) bool { return n.room(gpu, n.GPUs[gpu], s) }

// ID tells the nodes of a cluster apart; there is no pattern in it.
func ID(n *Node) uint64 { return n.id }

// Total is the CPU and the memory that the node had when it came.
func Total(n *Node) (Milli, sharing.Bytes) { return n.cpu, n.memory }

// SameKind is how many requests the node holds that are of the kind of the shape: no GPU, shares, or a number of whole GPUs.
func SameKind(n *Node, s Shape) int { return n.kinds[kindOf(s)] }

// kinds is how many kinds of requests are told apart: none, shares, and 1, 2, 4, 8 and more GPUs.
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

// mix is splitmix64: a number without pattern for each number.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
