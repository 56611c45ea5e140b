// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
)

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

// HasCapacity reports whether the GPU fits the shape, as the node reserves it.
func HasCapacity(n *Node, gpu int, s Shape) bool { return n.room(gpu, n.GPUs[gpu], s) }

// ID tells the nodes of a cluster apart; there is no pattern in it.
func ID(n *Node) uint64 { return n.id }

// Total is the CPU and the memory that the node had when it came.
func Total(n *Node) (Milli, sharing.Bytes) { return n.cpu, n.memory }

// SameKind is how many requests the node holds that are of the kind of the shape: no GPU, shares, or a number of whole
// GPUs.
func SameKind(n *Node, s Shape) int { return n.kinds[kindOf(s)] }

// kinds is the number of kinds of requests: none, shares, and 1, 2, 4, 8 and more GPUs.
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

// tooMuch is a share that no GPU has.
const tooMuch = WholeGPU + 1

// share is what a request for the shape takes from each GPU of this node: the larger of its parts of memory and
// compute. On GPUs in MIG mode it is a whole instance.
func (n *Node) share(s Shape) Milli {
	switch {
	case n.Table != nil && s.GPUs > 0:
		if p, ok := n.instance(s); ok {
			return n.sharedGeometry().booked(p)
		}
		return tooMuch
	case s.Profile != "":
		return tooMuch
	}
	share := n.compute(s)
	if s.GPUMemory > 0 {
		if s.GPUMemory > n.GPUMemory {
			return tooMuch // no share is larger than the GPU, however often its memory is given
		}
		high, low := bits.Mul64(uint64(s.GPUMemory), uint64(WholeGPU))
		part, rest := bits.Div64(high, low, uint64(n.Overcommit.Memory.Of(n.GPUMemory))) // of at least as much
		if rest > 0 {
			part++
		}
		share = max(share, Milli(part)) //nolint:gosec // at most WholeGPU
	}
	return share
}

// compute is what the shape's percent takes of a GPU's compute; without an amount of memory it is of the memory as
// well.
func (n *Node) compute(s Shape) Milli {
	f := n.Overcommit.Compute
	if s.GPUMemory == 0 {
		f = min(f, n.Overcommit.Memory)
	}
	if !f.More() || s.GPUMemory == 0 && s.Share >= WholeGPU {
		return s.Share // a whole GPU is given once
	}
	return (s.Share*100 + Milli(f) - 1) / Milli(f)
}

// resolve is the shape as this node reserves it.
func (n *Node) resolve(s Shape) Shape {
	switch {
	case s.GPUs == 0:
	case n.Table != nil:
		booked := n.share(s)
		if p, ok := n.instance(s); ok {
			s.Profile, s.GPUMemory = p.Name, 0
		}
		s.Share = booked
	case s.GPUMemory > 0 || s.Profile != "" || n.Overcommit != sharing.Overcommit{}:
		s.Share = n.share(s)
	}
	return s
}

// Place says how a GPU lies in its node. Equal numbers mean the same group; the numbers mean nothing else.
type Place struct {
	// NVLink is the group that reaches each other over NVLink or one NVSwitch.
	NVLink int
	// NUMA is the memory node that the GPU hangs at.
	NUMA int
	// PCIe is the switch or root port.
	PCIe int
}

// chosen are the GPUs of the node that a request for the shape takes, in ascending order. They are as close together as
// possible (NVLink, then NUMA, then PCIe); of equally close ones, those with the least free capacity.
func (n *Node) chosen(s Shape) []int {
	count := s.GPUs
	if count == 0 {
		return nil
	}
	fit := make([]int, 0, len(n.GPUs))
	for g, left := range n.GPUs {
		if n.room(g, left, s) {
			fit = append(fit, g)
		}
	}
	slices.SortStableFunc(fit, func(a, b int) int { return cmp.Compare(n.GPUs[a], n.GPUs[b]) })
	if len(n.Topology) == len(n.GPUs) && count > 1 {
		fit = closest(n.Topology, fit, count, 0)
	}
	fit = fit[:count]
	slices.Sort(fit)
	return fit
}

// closest are count of the GPUs: of the smallest group that has so many, else of the largest groups together.
func closest(topology []Place, gpus []int, count, level int) []int {
	if len(gpus) <= count || level == 3 {
		return gpus[:count]
	}
	var order []int
	groups := map[int][]int{}
	for _, g := range gpus {
		p := topology[g]
		key := [...]int{p.NVLink, p.NUMA, p.PCIe}[level]
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], g)
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(len(groups[a]), len(groups[b])) })
	var out []int
	for count > 0 {
		// The smallest that is enough; where none is, the largest, and the rest from what is left.
		at := slices.IndexFunc(order, func(key int) bool { return len(groups[key]) >= count })
		if at < 0 {
			at = len(order) - 1
		}
		group := groups[order[at]]
		take := min(count, len(group))
		out = append(out, closest(topology, group, take, level+1)...)
		count -= take
		order = slices.Delete(order, at, at+1)
	}
	return out
}
