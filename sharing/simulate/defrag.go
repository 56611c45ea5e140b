// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"slices"
	"strconv"
	"time"

	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/defrag"
)

// Defrag has pods moved for a pod that does not fit.
type Defrag struct {
	// Moves is the most moves for one pod. Zero: no pod is moved.
	Moves int
	// CostPerGPU is the highest cost for one GPU that the pod gets, as in package defrag; 0 for no limit. A mean life
	// time counts as an hour.
	CostPerGPU int64
}

// Moved counts moves, as it is printed in JSON.
type Moved struct {
	// Moves is how many pods were moved, for how many pods that would have been rejected.
	Moves int `json:"moves"`
	For   int `json:"forPods"`
	// PerThousand is the moves for 1,000 pods that were placed.
	PerThousand float64 `json:"movesPerThousandPods"`
}

// tenancy is a pod that runs in a trial with moves.
type tenancy struct {
	held
	since float64
}

// mover moves pods in a trial.
type mover struct {
	Defrag
	running map[*tenancy]bool
	// order has the running pods in the order of their arrival; ended ones stay until it is cleaned.
	order []*tenancy
	now   float64
	moved Moved
}

// begin notes a pod that was placed.
func (m *mover) begin(h held) *tenancy {
	t := &tenancy{h, m.now}
	if m.Moves > 0 {
		m.running[t] = true
		m.order = append(m.order, t)
	}
	return t
}

// end forgets a pod.
func (m *mover) end(t *tenancy) {
	delete(m.running, t)
	if len(m.order) > 2*len(m.running)+1024 {
		m.order = slices.DeleteFunc(m.order, func(t *tenancy) bool { return !m.running[t] })
	}
}

// makeRoom moves pods so that the request fits, and returns its placement.
func (t *trial) makeRoom(h held) (cluster.Placement, bool) {
	m := t.mover
	if m.Moves == 0 || h.pod.GPUs == 0 {
		return cluster.Placement{}, false
	}
	var pods []*tenancy
	for _, p := range m.order {
		if m.running[p] && p.pod.GPUs > 0 {
			pods = append(pods, p)
		}
	}
	b := &board{cluster: t.cluster}
	problem := t.problem(pods, h, b)
	plan := defrag.Make(&problem, b)
	pending := len(pods)
	if len(plan.Steps) == 0 {
		return cluster.Placement{}, false
	}
	step := plan.Steps[0]
	for _, move := range step.Moves {
		p := pods[move.Pod]
		t.allocated -= t.demand(p.held)
		p.place, _ = move.To.Plan.(cluster.Placement)
		p.since = m.now
		t.allocated += t.demand(p.held)
	}
	m.moved.Moves += len(step.Moves)
	m.moved.For++
	place, _ := step.Fits[0].To.Plan.(cluster.Placement)
	t.cluster.Return(b.requests[pending], place)
	t.idle, t.fragmented = 0, 0
	for i := range t.cluster.Len() {
		t.idle += t.cluster.Node(i).Free()
		t.fragmented += t.usual.Fragmentation(t.cluster.Node(i))
	}
	return place, true
}

// problem is the running pods and one that waits, which is the last.
func (t *trial) problem(pods []*tenancy, h held, b *board) defrag.Problem {
	p := defrag.Problem{Limits: defrag.Limits{Moves: t.mover.Moves, CostPerGPU: t.mover.CostPerGPU}}
	for i := range t.cluster.Len() {
		n := t.cluster.Node(i)
		p.Nodes = append(p.Nodes, defrag.Node{Name: n.Name, GPUs: make([]string, len(n.GPUs))})
	}
	add := func(h held) defrag.Pod {
		b.requests = append(b.requests, h.taken)
		return defrag.Pod{UID: strconv.Itoa(len(b.requests)), GPUs: h.taken.GPUs, Demand: int64(h.pod.Demand())}
	}
	for _, at := range pods {
		pod := add(at.held)
		pod.Placed, pod.At = true, placeOf(at.place)
		pod.Ran = time.Duration((t.mover.now - at.since) * float64(time.Hour))
		p.Pods = append(p.Pods, pod)
	}
	p.Pods = append(p.Pods, add(h))
	return p
}

// board is a cluster as package defrag uses it.
type board struct {
	cluster  *cluster.Cluster
	requests []cluster.Request
}

var _ defrag.Cluster = (*board)(nil)

func placeOf(p cluster.Placement) defrag.Place {
	return defrag.Place{Node: p.Node, GPUs: p.GPUs, Plan: p}
}

// Nodes implements defrag.Cluster.
func (b *board) Nodes() int { return b.cluster.Len() }

// Places implements defrag.Cluster.
func (b *board) Places(pod, node int, all bool) []defrag.Place {
	p, ok := cluster.PlaceOn(b.cluster, node, b.requests[pod])
	switch {
	case !ok:
		return nil
	case !all:
		return []defrag.Place{placeOf(p)}
	}
	var out []defrag.Place
	for _, p := range cluster.PlacesOn(b.cluster, node, b.requests[pod]) {
		out = append(out, placeOf(p))
	}
	return out
}

// Open implements defrag.Cluster.
func (b *board) Open(pod int, p defrag.Place) bool {
	place, ok := p.Plan.(cluster.Placement)
	return ok && cluster.StillFits(b.cluster, b.requests[pod], place)
}

// Best implements defrag.Cluster.
func (b *board) Best(pod int) (defrag.Place, bool) {
	p, ok := b.cluster.Choose(b.requests[pod])
	return placeOf(p), ok
}

// Take implements defrag.Cluster.
func (b *board) Take(pod int, p defrag.Place) {
	if place, ok := p.Plan.(cluster.Placement); ok {
		b.cluster.Restore(b.requests[pod], place)
	}
}

// Release implements defrag.Cluster.
func (b *board) Release(pod int, p defrag.Place) {
	if place, ok := p.Plan.(cluster.Placement); ok {
		b.cluster.Return(b.requests[pod], place)
	}
}

// Work implements defrag.Cluster. An experiment has no bound.
func (b *board) Work() int64 { return 0 }

// Withhold implements defrag.Cluster.
func (b *board) Withhold(node int, gpus []int, withheld bool) {
	for _, g := range gpus {
		_ = b.cluster.Withhold(node, g, withheld) // the node has it: a pod is on it
	}
}
