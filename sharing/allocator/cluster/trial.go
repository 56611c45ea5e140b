// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/binary"
	"slices"
)

// PlaceOn is the placement of a request on one node, as Choose would place it there; false if it does not fit.
func PlaceOn(c *Cluster, node int, r Request) (Placement, bool) {
	n := c.nodes[node]
	if Evaluate(n, r) != Fits {
		return Placement{}, false
	}
	gpus := []int{}
	switch s := n.resolve(r.Shape); {
	case r.GPUs == 1:
		_, gpu := c.policy.Score(n, s)
		gpus = append(gpus, gpu)
	case r.GPUs > 1:
		gpus = n.chosen(s)
	}
	return c.Place(r, node, gpus)
}

// PlacesOn are the placements of a request on one node that differ in what is left free. A large node can have many.
func PlacesOn(c *Cluster, node int, r Request) []Placement {
	n := c.nodes[node]
	if Evaluate(n, r) != Fits {
		return nil
	}
	var out []Placement
	seen := map[string]bool{}
	s := n.resolve(r.Shape)
	var pick func(from int, gpus []int)
	pick = func(from int, gpus []int) {
		if len(gpus) == r.GPUs {
			if key := leftKey(n, gpus); !seen[key] {
				seen[key] = true
				out = append(out, started(c, r, node, slices.Clone(gpus))...)
			}
			return
		}
		for g := from; g < len(n.GPUs); g++ {
			if n.room(g, n.GPUs[g], s) {
				pick(g+1, append(gpus, g))
			}
		}
	}
	pick(0, nil)
	return out
}

// leftKey is equal for sets of GPUs that have the same free.
func leftKey(n *Node, gpus []int) string {
	left := make([]Milli, 0, len(gpus))
	for _, g := range gpus {
		left = append(left, n.GPUs[g])
	}
	slices.Sort(left)
	key := make([]byte, 0, 16*len(left))
	for _, l := range left {
		key = binary.LittleEndian.AppendUint64(key, uint64(l)) //nolint:gosec // a free amount is not below zero
	}
	if n.Table != nil { // equal amounts of different slices differ
		for _, g := range gpus {
			key = binary.LittleEndian.AppendUint64(key, uint64(g)) //nolint:gosec // an index
		}
	}
	return string(key)
}

// started are the placements on these GPUs, one for each place of a MIG instance.
func started(c *Cluster, r Request, node int, gpus []int) []Placement {
	n := c.nodes[node]
	if n.Table == nil || r.GPUs == 0 {
		return []Placement{{Node: node, GPUs: gpus}}
	}
	profile, ok := n.instance(r.Shape)
	if !ok || len(gpus) != 1 {
		return nil
	}
	var out []Placement
	n.begins(gpus[0], profile, func(start int) bool {
		out = append(out, Placement{Node: node, GPUs: gpus, Starts: []int{start}})
		return false
	})
	return out
}

// StillFits reports whether exactly this placement fits now.
func StillFits(c *Cluster, r Request, p Placement) bool {
	return Evaluate(c.nodes[p.Node], r) == Fits && c.fit(r, p) == nil
}

// Return gives back what Take reserved on trial: the policy learns nothing from it.
func (c *Cluster) Return(r Request, p Placement) { c.move(r, p, 1) }

// Restore reserves again what Return gave back, on a GPU that takes nothing new, too.
func (c *Cluster) Restore(r Request, p Placement) { c.move(r, p, -1) }
