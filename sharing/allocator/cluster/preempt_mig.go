// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import "github.com/kerf-gpu/kerf/mig"

// mostInstances bounds the search among the holders of one GPU in MIG mode: no GPU has more instances than this has bits.
const mostInstances = 16

// clear is the cheapest set whose end makes room on the GPU, beside the victims that are out already.
func (e *eviction) clear(out []bool, limit int32, gpu int, after *Node) ([]int, toll, bool) {
	if e.node.Table == nil {
		return e.cover(out, limit, gpu, e.share-after.GPUs[gpu])
	}
	var here []int
	for i := range e.candidates {
		if h := &e.candidates[i]; !out[i] && h.Priority <= limit && h.gpus[gpu] > 0 && len(here) < mostInstances {
			here = append(here, i)
		}
	}
	var best []int
	least, found := toll{}, false
	for set := range 1 << len(here) {
		t := toll{}
		var victims []int
		n := Node{GPUs: []Milli{after.GPUs[gpu]}, Table: after.Table, state: state{geometry: after.geometry, instances: []mig.Occupancy{after.instances[gpu]}}}
		for k, i := range here {
			if set&(1<<k) == 0 {
				continue
			}
			h := &e.candidates[i]
			victims, t = append(victims, i), t.plus(h)
			n.GPUs[0] += h.gpus[gpu]
			n.remove(0, gpu, h.Claims)
		}
		if (!found || t.compare(least) < 0) && n.room(0, n.GPUs[0], e.shape) {
			best, least, found = victims, t, true
		}
	}
	return best, least, found
}

// uncut takes the instances of the claims off the GPUs.
func (n *Node) uncut(claims []Claim) {
	for g := range n.instances {
		n.remove(g, g, claims)
	}
}

// remove takes the instances that the claims have on one GPU off the GPU at an index.
func (n *Node) remove(at, gpu int, claims []Claim) {
	for _, c := range claims {
		for i, g := range c.GPUs {
			if g != gpu || i >= len(c.Starts) {
				continue
			}
			if p, ok := n.instance(c.Shape); ok {
				n.hold(at, c.Starts[i], p, 1)
			}
		}
	}
}
