// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"slices"

	"github.com/kerf-gpu/kerf/mig"
)

// after is what the node has once the victims are gone.
func (e *eviction) after(out []bool) Node {
	n := *e.node
	n.GPUs, n.instances = slices.Clone(n.GPUs), slices.Clone(n.instances)
	for i, gone := range out {
		if !gone {
			continue
		}
		h := &e.candidates[i]
		n.CPU += h.cpu
		n.Memory += h.memory
		for g, gain := range h.gpus {
			n.GPUs[g] += gain
		}
		n.uncut(h.Grants)
	}
	return n
}

// freeMachine adds victims until CPU and memory of the machine are enough: those that bring most of what is short, and
// protected ones last.
func (e *eviction) freeMachine(out []bool, limit int32) bool {
	for {
		n := e.after(out)
		cpu, memory := max(0, e.request.CPU-n.CPU), e.request.Memory.SubFloor(n.Memory)
		if cpu == 0 && memory == 0 {
			return true
		}
		at, most := -1, 0.0
		for i := range e.candidates {
			h := &e.candidates[i]
			if out[i] || h.Priority > limit {
				continue
			}
			brings := 0.0
			if cpu > 0 {
				brings += float64(min(h.cpu, cpu)) / float64(cpu)
			}
			if memory > 0 {
				brings += float64(min(h.memory, memory)) / float64(memory)
			}
			if brings > 0 && (at < 0 || e.rather(i, brings, at, most)) {
				at, most = i, brings
			}
		}
		if at < 0 {
			return false
		}
		out[at] = true
	}
}

func (e *eviction) rather(i int, brings float64, at int, most float64) bool {
	a, b := &e.candidates[i], &e.candidates[at]
	if a.Protected != b.Protected {
		return !a.Protected
	}
	if brings != most {
		return brings > most
	}
	return a.Cost < b.Cost
}

// spare lets off, the dearest first, whom the others make unnecessary.
func (e *eviction) spare(out []bool) {
	order, _ := e.listed(out)
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := &e.candidates[a], &e.candidates[b]
		if x.Protected != y.Protected {
			if x.Protected {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(y.Priority, x.Priority), cmp.Compare(y.Cost, x.Cost))
	})
	for _, i := range order {
		out[i] = false
		if n := e.after(out); Evaluate(&n, e.request) != Fits {
			out[i] = true
		}
	}
}

// listed are the victims and what they cost.
func (e *eviction) listed(out []bool) ([]int, toll) {
	var victims []int
	t := toll{}
	for i, gone := range out {
		if !gone {
			continue
		}
		h := &e.candidates[i]
		if len(victims) == 0 {
			t.highest = h.Priority
		}
		victims, t = append(victims, i), t.plus(h)
		t.highest = max(t.highest, h.Priority)
	}
	return victims, t
}

// place is what the request takes once the victims are gone.
func (e *eviction) place(c *Cluster, node int, victims []int) Placement {
	out := make([]bool, len(e.candidates))
	for _, i := range victims {
		out[i] = true
	}
	n := e.after(out)
	gpus := n.chosen(e.shape)
	return Placement{node, gpus, starts(c.policy, &n, e.request.Shape, gpus)}
}

func (e *eviction) holders(victims []int) []int {
	var at []int
	for _, i := range victims {
		at = append(at, e.candidates[i].index)
	}
	slices.Sort(at)
	return at
}

// mostInstances bounds the search among the holders of one GPU in MIG mode: no GPU has more instances than this has
// bits.
const mostInstances = 16

// clear is the cheapest set whose end makes room on the GPU, in addition to the victims that are out already.
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
		n := Node{GPUs: []Milli{after.GPUs[gpu]}, Table: after.Table,
			state: state{geometry: after.geometry, instances: []mig.Occupancy{after.instances[gpu]}}}
		for k, i := range here {
			if set&(1<<k) == 0 {
				continue
			}
			h := &e.candidates[i]
			victims, t = append(victims, i), t.plus(h)
			n.GPUs[0] += h.gpus[gpu]
			n.remove(0, gpu, h.Grants)
		}
		if (!found || t.compare(least) < 0) && n.room(0, n.GPUs[0], e.shape) {
			best, least, found = victims, t, true
		}
	}
	return best, least, found
}

// uncut takes the instances of the claims off the GPUs.
func (n *Node) uncut(claims []Grant) {
	for g := range n.instances {
		n.remove(g, g, claims)
	}
}

// remove takes the instances that the claims have on one GPU off the GPU at an index.
func (n *Node) remove(at, gpu int, claims []Grant) {
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
