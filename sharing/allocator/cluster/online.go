// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"maps"
	"slices"

	"github.com/kerf-gpu/kerf/mig"
)

// Learner is a Policy that learns from what arrives.
type Learner interface {
	// Learn hears of a request that arrived, whether it was placed or not; true when scores differ from now on.
	Learn(r Request) bool
}

// Online is Kerf without initial knowledge of the workload: it learns from the requests. It estimates after 64
// requests, then after twice as many each time, and finally every 4096. From then on, older requests count three
// quarters, so that it follows a workload that changes. With GPUs in MIG mode, a few hundred requests fill many GPUs.
// So it first estimates profile frequencies after each request, then after each tenth more.
type Online struct {
	*Kerf
	nodes  []Node
	counts map[Shape]int64
	// heard is the requests since the last estimate, until how many bring the next one.
	heard, until int
	// asked is how many requests for GPUs came since the last estimate of each profile's frequency. counted is how many
	// counts has.
	asked, counted int64
}

const (
	firstEstimate  = 64
	longestWait    = 4096
	countUnit      = 1024 // a request counts so much when it arrives
	fadeOf, fadeTo = 4, 3
	// floorNeed is how often, in thousandths of the places, a start on the largest nodes is thought to be needed at
	// least.
	floorNeed = 50
	// countedParts is of how many parts one more makes a new estimate of how often each profile is asked for.
	countedParts = 10
)

// NewOnline is Online for the nodes, which are taken as they are when empty.
func NewOnline(nodes []Node) *Online {
	o := &Online{counts: map[Shape]int64{}, until: firstEstimate}
	o.Nodes(nodes)
	return o
}

// Learn implements Learner.
func (o *Online) Learn(r Request) bool {
	o.counts[r.Shape] += countUnit
	o.heard++
	if r.GPUs > 0 {
		o.asked++
	}
	if o.heard < o.until {
		if len(o.usual) == 0 || o.asked == 0 || o.asked*countedParts < o.counted {
			return false
		}
		o.profiles()
		return true
	}
	o.estimate()
	o.heard = 0
	if o.until < longestWait {
		o.until *= 2
		return true
	}
	for s, n := range o.counts {
		if n = n * fadeTo / fadeOf; n < countUnit/fadeOf {
			delete(o.counts, s)
		} else {
			o.counts[s] = n
		}
	}
	return true
}

func (o *Online) estimate() {
	left := 0
	if o.Kerf != nil {
		left = o.left
	}
	o.Kerf = NewKerf(workloadOf(o.counts), o.nodes)
	if o.left = left; left == leavingAfter {
		o.vary()
	}
	o.floor()
	o.profiles()
}

// profiles values what is free on GPUs in MIG mode by what was counted.
func (o *Online) profiles() {
	if len(o.usual) == 0 {
		return
	}
	o.asked, o.counted = 0, 0
	for s, n := range o.counts {
		if s.GPUs > 0 {
			o.counted += n / countUnit
		}
	}
	o.usual = instanceValues(workloadOf(o.counts), o.nodes, func(t *mig.Table, seen mig.Demand) *mig.Values {
		for id := range seen {
			seen[id] /= countUnit
		}
		return mig.Counted(t, seen)
	})
	o.values = maps.Clone(o.usual)
}

// floor gives a start on the largest nodes a price before any request for one was seen: when it comes, it is too late.
func (o *Online) floor() {
	largest := 0
	for i := range o.nodes {
		largest = max(largest, len(o.nodes[i].GPUs))
	}
	if largest < 2 {
		return
	}
	price := int64(largest) * floorNeed
	for i := range o.starts {
		if o.starts[i].GPUs == largest {
			price -= o.starts[i].price
		}
	}
	if price > 0 {
		o.starts = append(o.starts, start{Shape{GPUs: largest, Share: WholeGPU}, price})
	}
}

// Nodes tells of nodes that came, went or changed, taken as they are when empty. What was learned stays.
func (o *Online) Nodes(nodes []Node) {
	o.nodes = make([]Node, len(nodes))
	for i, n := range nodes {
		n.GPUs = slices.Clone(n.GPUs)
		o.nodes[i] = n
	}
	o.estimate()
}
