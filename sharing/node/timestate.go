// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// Compute says whether something holds a grant to its share of GPU time.
type Compute struct {
	// By is what does: ComputeExclusive, a backend's name, or ComputeNone.
	By string
	// Why says for ComputeNone why nothing does, and else by what rule it is done.
	Why string
	// Priority is its class: idle time is lent to the highest first.
	Priority int32
	// Times has an entry for each fragment of a lease whose programs count their time; else it is nil.
	Times []Time
}

// Time is what is known of a lease's use of one GPU's time.
type Time = libkerf.Time

// What Compute.By is where it is no backend.
const (
	// ComputeExclusive: the grant has whole GPUs.
	ComputeExclusive = "exclusive"
	// ComputeNone: nothing.
	ComputeNone = "none"
)

// computeOf needs the lock.
func (r *Runtime) computeOf(g ledger.Grant) Compute {
	_, percent := g.Claim.Placement.Total()
	none := func(why string) Compute { return Compute{By: ComputeNone, Why: why} }
	way := backend.PropertiesOf(g.Claim.Backend)
	switch {
	case g.Claim.Request.Kind == sharing.KindWhole:
		return Compute{By: ComputeExclusive}
	case g.Lease == nil:
		return none("no program uses the grant yet")
	case way.Served && percent > 0:
		return Compute{By: g.Claim.Backend.String(), Why: "MPS limits the threads that each of its clients uses at once, and not their time"}
	case percent == 0 && !way.Counts:
		return none("it has no percent of a GPU")
	case !way.Counts:
		return none("backend " + g.Claim.Backend.String() + " shares no GPU time; libkerf does, and mps limits threads")
	}
	times, unheld := r.libkerf.TimeOf(string(g.Claim.ID), g.Claim.Placement) // of all that share its cap
	if times == nil {
		return none(unheld)
	}
	c := Compute{By: g.Claim.Backend.String(), Why: r.settings.Pool().Compute.String(), Times: times, Priority: r.priorityOf(g)}
	if s := r.speaker(g); s != g.Claim.ID {
		c.Why, c.Times = c.Why+", counted together with grant "+string(s), nil
	}
	if unheld != "" {
		c.By, c.Why = ComputeNone, unheld
	}
	return c
}

// priorityOf is the class of a grant: its profile's, else its pod's. It needs the lock.
func (r *Runtime) priorityOf(g ledger.Grant) int32 {
	return r.settings.Config().PriorityOf(g.Claim.Request.Profile, g.Claim.Priority)
}
