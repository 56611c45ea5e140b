// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"slices"
)

// Place says how a GPU lies in its node. Equal numbers mean the same group; the numbers mean nothing else.
type Place struct {
	// NVLink is the group that reaches each other over NVLink or one NVSwitch.
	NVLink int
	// NUMA is the memory node that the GPU hangs at.
	NUMA int
	// PCIe is the switch or root port.
	PCIe int
}

// chosen are the GPUs of the node that a request for the shape, as the node books it, takes, in ascending order: as close
// together as can be (NVLink, then NUMA, then PCIe), of equally close ones those with the least room.
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
