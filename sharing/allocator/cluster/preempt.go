// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"math"
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
)

// Grant is a request that is held, and on which GPUs of its node.
type Grant struct {
	Request
	GPUs []int
	// Starts are where its MIG instances begin, one for each GPU; nil without MIG.
	Starts []int
}

// VictimCandidate is a pod that holds something on a node and could be made to give it up, all at once.
type VictimCandidate struct {
	Pod string
	// Node is the index of its node.
	Node int
	// Priority is that of the pod; only holders below the priority of the request are victims.
	Priority int32
	// Protected holders would break a disruption budget: one is a victim only where there is no other way.
	Protected bool
	// Cost decides among equally many of equal priority, such as the seconds for which the pod has run; 0 or more.
	Cost int64
	// Grants are what the pod has taken, one for each container that asked.
	Grants []Grant
}

// Preemption is the room that a request gets once the victims are gone.
type Preemption struct {
	Placement
	// Victims are indexes of the holders, ascending; empty where there is room already.
	Victims []int
}

// toll is what victims cost; the less the better, the first field first.
type toll struct {
	protected, pods int
	highest         int32
	cost            int64
}

func (t toll) compare(u toll) int {
	return cmp.Or(cmp.Compare(t.protected, u.protected), cmp.Compare(t.pods, u.pods), cmp.Compare(t.highest, u.highest),
		cmp.Compare(t.cost, u.cost))
}

// Preempt finds the victims that free capacity for a request of the priority on one node. It prefers the fewest
// protected ones, then the fewest, then the lowest highest priority, then the cheapest. Only nodes of the holders are
// candidates. It takes nothing; false when there is no way.
//
// None of the victims could be spared. There is no smaller set, with two exceptions. CPU or memory of the machine is
// short too, or holders lie on several GPUs of which the request needs several.
func (c *Cluster) Preempt(r Request, priority int32, holders []VictimCandidate) (Preemption, bool) {
	byNode := map[int][]int{}
	for i := range holders {
		if node := holders[i].Node; node >= 0 && node < len(c.nodes) {
			byNode[node] = append(byNode[node], i)
		}
	}
	best, least, found := Preemption{}, toll{}, false
	for node, n := range c.nodes {
		here := byNode[node]
		if here == nil {
			continue
		}
		e := newEviction(n, r, priority, holders, here)
		if e == nil || found && e.atLeast() > least.pods && least.protected == 0 {
			continue
		}
		victims, t, ok := e.solve()
		if ok && (!found || t.compare(least) < 0) {
			found, least = true, t
			best = Preemption{e.place(c, node, victims), e.holders(victims)}
		}
	}
	return best, found
}

// eviction is the question for one node.
type eviction struct {
	node       *Node
	request    Request
	share      Milli
	shape      Shape // as the node reserves it
	candidates []candidate
}

// candidate is a holder below the priority, and what it would give back.
type candidate struct {
	*VictimCandidate
	index  int
	cpu    Milli
	memory sharing.Bytes
	gpus   []Milli
}

// newEviction is nil where no eviction can help.
func newEviction(n *Node, r Request, priority int32, holders []VictimCandidate, here []int) *eviction {
	s := n.resolve(r.Shape)
	if n.Cordoned || s.Share > WholeGPU || never(n, s) != Fits {
		return nil
	}
	e := &eviction{node: n, request: r, share: s.Share, shape: s}
	for _, i := range here {
		h := &holders[i]
		if h.Priority >= priority {
			continue
		}
		give := candidate{VictimCandidate: h, index: i, gpus: make([]Milli, len(n.GPUs))}
		for _, claim := range h.Grants {
			give.cpu += claim.CPU
			give.memory += claim.Memory
			for _, g := range claim.GPUs {
				if g >= 0 && g < len(n.GPUs) && !n.withheld(g) {
					give.gpus[g] += n.share(claim.Shape)
				}
			}
		}
		e.candidates = append(e.candidates, give)
	}
	return e
}

// withheld GPUs take nothing new, even if victims leave them.
func (n *Node) withheld(gpu int) bool { return gpu < len(n.aside) && n.aside[gpu] != inUse }

// atLeast is a number of victims that cannot be undercut.
func (e *eviction) atLeast() int {
	if e.request.GPUs != 1 {
		return 0
	}
	least := math.MaxInt
	for g, left := range e.node.GPUs {
		need, victims := e.share-left, 0
		gains := make([]Milli, 0, len(e.candidates))
		for i := range e.candidates {
			gains = append(gains, e.candidates[i].gpus[g])
		}
		slices.Sort(gains)
		for i := len(gains) - 1; i >= 0 && need > 0; i-- {
			need -= gains[i]
			victims++
		}
		if need <= 0 {
			least = min(least, victims)
		}
	}
	return least
}

// solve tries every limit of priority, since a low highest one counts before the cost.
func (e *eviction) solve() ([]int, toll, bool) {
	limits := []int32{math.MinInt32}
	for i := range e.candidates {
		limits = append(limits, e.candidates[i].Priority)
	}
	slices.Sort(limits)
	var best []int
	least, found := toll{}, false
	for _, limit := range slices.Compact(limits) {
		out := make([]bool, len(e.candidates))
		if !e.freeGPUs(out, limit) || !e.freeMachine(out, limit) {
			continue
		}
		e.spare(out)
		victims, t := e.listed(out)
		if !found || t.compare(least) < 0 {
			best, least, found = victims, t, true
		}
	}
	return best, least, found
}

// freeGPUs adds the victims that make the GPUs free, one GPU after the other, the cheapest first.
func (e *eviction) freeGPUs(out []bool, limit int32) bool {
	chosen := make([]bool, len(e.node.GPUs))
	for range e.request.GPUs {
		at := -1
		var victims []int
		least := toll{}
		after := e.after(out)
		for g := range chosen {
			if chosen[g] || e.node.withheld(g) {
				continue
			}
			more, t, ok := e.clear(out, limit, g, &after)
			if ok && (at < 0 || t.compare(least) < 0) {
				at, victims, least = g, more, t
			}
		}
		if at < 0 {
			return false
		}
		chosen[at] = true
		for _, i := range victims {
			out[i] = true
		}
	}
	return true
}

// cover is the cheapest set that gives back what is needed on the GPU. For each need up to that, and each candidate, it
// keeps the best with or without it.
func (e *eviction) cover(out []bool, limit int32, gpu int, need Milli) ([]int, toll, bool) {
	if need <= 0 {
		return nil, toll{}, true
	}
	best := make([]toll, need+1)
	for v := range best[1:] {
		best[v+1] = noWay()
	}
	var asked []int
	var taken [][]bool
	for i := range e.candidates {
		h := &e.candidates[i]
		gain := h.gpus[gpu]
		if out[i] || h.Priority > limit || gain <= 0 {
			continue
		}
		with := make([]bool, need+1)
		for v := need; v > 0; v-- {
			if t := best[max(0, v-gain)].plus(h); t.compare(best[v]) < 0 {
				best[v], with[v] = t, true
			}
		}
		asked, taken = append(asked, i), append(taken, with)
	}
	if best[need] == noWay() {
		return nil, toll{}, false
	}
	var victims []int
	for v, k := need, len(asked)-1; v > 0; k-- {
		if taken[k][v] {
			victims = append(victims, asked[k])
			v = max(0, v-e.candidates[asked[k]].gpus[gpu])
		}
	}
	return victims, best[need], true
}

// noWay is dearer than any set of holders.
func noWay() toll { return toll{protected: math.MaxInt} }

// plus leaves the highest priority out: solve bounds it, and only sums can be divided into parts.
func (t toll) plus(h *candidate) toll {
	if t == noWay() {
		return t
	}
	t.pods++
	t.cost += h.Cost
	if h.Protected {
		t.protected++
	}
	return t
}
