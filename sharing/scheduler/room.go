// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package scheduler has the state of a cluster for a scheduler. That is the free amounts of each GPU, the pods that
// have a share or soon will, and the nodes that answer a pod best.
//
// What it knows comes from three places. The report of a node's agent (its GPUNode) says what the node has and which
// grants are there; it alone counts for what it reports. A pod may be bound, or reserved here, and missing from the
// report: it has what was planned for it. And the heartbeat says whether the report is to be believed.
//
// It promises that the reservation of a pod stays until the node's report has it, and then until the node has released
// it. The same pods and reports give the same state. A node without a heartbeat, or with an inconsistent report, takes
// nothing new. It does not promise that a node can do what was planned. The node's ledger decides, and no scheduler can
// make it grant a byte twice.
//
// It has no I/O, clock or goroutine: times are given to it. It is not safe for concurrent use.
package scheduler

import (
	"slices"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator"
)

// survey is the last number of free units of all GPUs in MIG mode that the policy received.
type survey struct {
	rooms map[*mig.Table]mig.FreeCapacity
	gpus  int
	// changes of nodes with such GPUs came since then; void if the policy may have lost it.
	changes int
	void    bool
}

// rooms adds the GPUs in MIG mode that have free units, and returns their number.
func (s *state) rooms(rooms map[*mig.Table]mig.FreeCapacity) int {
	gpus := 0
	for _, g := range s.gpus {
		c := s.migGPU(g.GPU.Ref())
		if c == nil || c.geometry == nil || c.fixed || c.trouble != "" || g.GPU.Health != sharing.HealthOK {
			continue
		}
		room := rooms[c.table]
		if room == nil {
			room = mig.FreeCapacity{}
			rooms[c.table] = room
		}
		room[c.table.Free(s.taken(g.GPU.Ref()))]++
		gpus++
	}
	return gpus
}

// switchToll is subtracted from the score of a node that would change a GPU's mode for a pod, so that others come
// first. It is far more than any score, and far less than what many of them may add up to.
const switchToll = int64(1) << 50

// idle reports whether a GPU's node would change its mode for a pod, and nothing is planned there meanwhile.
func (s *state) idle(g allocator.GPUState) bool {
	c := s.migGPUs[g.GPU.Ref()]
	return c != nil && c.turns && s.holders[g.GPU.Ref()] == 0 && g.GPU.Health == sharing.HealthOK
}

// turned is the state once all GPUs have that mode whose node would change it now; nil where there is none.
func (s *state) turned(on bool) *state {
	if !slices.ContainsFunc(s.gpus, func(g allocator.GPUState) bool { return g.GPU.MIG != on && s.idle(g) }) {
		return nil
	}
	out := s.clone()
	for i := range out.gpus {
		if g := &out.gpus[i]; g.GPU.MIG != on && s.idle(*g) {
			set(g, on)
		}
	}
	return out
}

// mustSwitch reports whether a GPU is to change its mode for a placement.
func (s *state) mustSwitch(p sharing.Placement) bool {
	return slices.ContainsFunc(p, func(f sharing.Share) bool {
		g := s.at(f.GPU)
		return g != nil && g.GPU.MIG == f.MIG.None() && s.idle(*g)
	})
}

// switchFor switches a GPU's mode for the request that gets its first share.
func (s *state) switchFor(f sharing.Share, g *allocator.GPUState) {
	if on := !f.MIG.None(); g.GPU.MIG != on && s.idle(*g) {
		set(g, on)
	}
}

// switchBack resets a GPU without users to the mode that its node reported.
func (s *state) switchBack(g *allocator.GPUState) {
	if c := s.migGPUs[g.GPU.Ref()]; c != nil && c.turns && s.holders[g.GPU.Ref()] == 0 && g.GPU.MIG != c.on {
		set(g, c.on)
	}
}

// set makes of an idle GPU what it is in a mode.
func set(g *allocator.GPUState, on bool) {
	g.GPU.MIG, g.FreeMemory, g.FreePercent = on, 0, 0
	if !on {
		g.FreeMemory, g.FreePercent = g.GPU.Bookable(), g.GPU.BookablePercent()
	}
}
