// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package measure has what an experiment measures in addition to a run with departures. It measures what fits in no
// packing, and what one pool of all GPUs would reject.
package measure

import (
	"github.com/kerf-gpu/kerf/lab/bound"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/simulate"
)

// Packing is the present set of pods as if all were packed again at each rejection.
type Packing struct {
	room  *bound.Capacity
	there map[cluster.Request]int
	// counting is set once refusals count.
	counting bool
	demand   cluster.Milli
	rejects  map[string]int
	// lacking is what was refused since the last pod left, where no packing had room: more of what is there makes none.
	lacking map[cluster.Request]bool
}

// NewPacking is a Packing into empty nodes.
func NewPacking(nodes []cluster.Node) *Packing {
	return &Packing{room: bound.New(nodes), there: map[cluster.Request]int{}, rejects: map[string]int{},
		lacking: map[cluster.Request]bool{}}
}

// Begin implements simulate.Observer.
func (p *Packing) Begin() { p.counting = true }

// Arrived implements simulate.Observer.
func (p *Packing) Arrived(*simulate.Pod, float64, float64) {}

// Placed implements simulate.Observer.
func (p *Packing) Placed(pod *simulate.Pod) { p.there[pod.Request]++ }

// Left implements simulate.Observer.
func (p *Packing) Left(pod *simulate.Pod) {
	p.there[pod.Request]--
	clear(p.lacking)
}

// Refused implements simulate.Observer.
func (p *Packing) Refused(pod *simulate.Pod, class string) {
	if !p.counting {
		return
	}
	if !p.lacking[pod.Request] {
		p.there[pod.Request]++
		p.lacking[pod.Request] = p.room.Impossible(p.there)
		p.there[pod.Request]--
	}
	if p.lacking[pod.Request] {
		p.demand += pod.Demand()
		p.rejects[class]++
	}
}

// Report implements simulate.Observer.
func (p *Packing) Report(r *simulate.Result, demand cluster.Milli) {
	r.NoPacking = &simulate.NoPacking{Percent: simulate.Percent(p.demand, demand), Rejects: p.rejects}
}
