// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator"
)

// turnToll is taken off the score of a node that would change a GPU's mode for a pod: it comes after all that need not. It
// is far more than any score, and far less than what many of them add up to may be.
const turnToll = int64(1) << 50

// idle reports whether a GPU's node would change its mode for a pod, and nothing is planned there meanwhile.
func (s *state) idle(g allocator.GPUState) bool {
	c := s.cuts[g.GPU.UUID]
	return c != nil && c.turns && s.holders[g.GPU.UUID] == 0 && g.GPU.Health == sharing.HealthOK
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

// mustTurn reports whether a GPU is to change its mode for a placement.
func (s *state) mustTurn(p sharing.Placement) bool {
	return slices.ContainsFunc(p, func(f sharing.Fragment) bool {
		g := s.at(f.GPU)
		return g != nil && g.GPU.MIG == f.MIG.None() && s.idle(*g)
	})
}

// turnFor has a GPU change its mode for who gets the first piece of it.
func (s *state) turnFor(f sharing.Fragment, g *allocator.GPUState) {
	if on := !f.MIG.None(); g.GPU.MIG != on && s.idle(*g) {
		set(g, on)
	}
}

// turnBack has a GPU that nobody has any more be as its node reported it.
func (s *state) turnBack(g *allocator.GPUState) {
	if c := s.cuts[g.GPU.UUID]; c != nil && c.turns && s.holders[g.GPU.UUID] == 0 && g.GPU.MIG != c.on {
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
