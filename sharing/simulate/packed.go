// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"github.com/kerf-gpu/kerf/sharing/allocator/bound"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
)

// packed is what is there as if it could be packed anew at each refusal. Nil counts nothing.
type packed struct {
	room  *bound.Room
	there map[cluster.Request]int
	// counting is set once refusals count.
	counting bool
	demand   cluster.Milli
	rejects  map[string]int
	// lacking is what was refused since the last pod left, where no packing had room: more of what is there makes none.
	lacking map[cluster.Request]bool
}

func newPacked(nodes []cluster.Node) *packed {
	return &packed{room: bound.New(nodes), there: map[cluster.Request]int{}, rejects: map[string]int{}, lacking: map[cluster.Request]bool{}}
}

func (p *packed) begin() {
	if p != nil {
		p.counting = true
	}
}

// add is a pod that came, or with -1 one that left.
func (p *packed) add(pod *Pod, n int) {
	if p == nil {
		return
	}
	p.there[pod.Request] += n
	if n < 0 {
		clear(p.lacking)
	}
}

func (p *packed) refused(pod *Pod, class string) {
	if p == nil || !p.counting {
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

// tell writes what was found into the result.
func (p *packed) tell(r *Result, arrived cluster.Milli) {
	if p != nil {
		r.NoPacking = &NoPacking{round(100 * float64(p.demand) / float64(max(1, arrived))), p.rejects}
	}
}
