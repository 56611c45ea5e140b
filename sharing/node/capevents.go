// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/reactive"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// CapEvents is what happened at a lease's cap on one GPU. What nobody counts is not known, and never zero.
type CapEvents struct {
	// Refused is how many calls of the lease's programs were refused because its cap left no room, since the lease began;
	// only when Counted. The programs count it, and can write it.
	Refused uint64
	Counted bool
	// Violations is how many times it was found past its cap since this agent started, and Delay for how long at most it had
	// been so when that was found last; only when Watched.
	Violations uint64
	Delay      time.Duration
	Watched    bool
}

// breaches are the times that a lease was found past its cap on one GPU.
type breaches struct {
	count uint64
	delay time.Duration
}

// noteBreach counts a verdict that begins a time past a cap.
func (g *guard) noteBreach(v reactive.Verdict) {
	if v.Reason == reactive.Stranger || !v.First {
		return
	}
	g.r.mu.Lock()
	defer g.r.mu.Unlock()
	h := g.r.held[ledger.ClaimID(v.Lease)]
	if h == nil {
		return // it has ended
	}
	if h.breaches == nil {
		h.breaches = map[sharing.GPUID]breaches{}
	}
	h.breaches[v.GPU] = breaches{h.breaches[v.GPU].count + 1, v.Delay}
}

// capEventsOf has an entry for each fragment of a lease, and is nil where another one speaks for all that share its cap.
// It needs the lock.
func (r *Runtime) capEventsOf(g ledger.Grant, h *holding) []CapEvents {
	if g.Lease == nil || h == nil || r.speaker(g) != g.Claim.ID {
		return nil
	}
	refused := r.libkerf.Refused(string(g.Claim.ID))
	out := make([]CapEvents, len(g.Claim.Placement))
	for i, f := range g.Claim.Placement {
		e, b := &out[i], h.breaches[f.GPU]
		n, counted := refused[f.GPU]
		e.Refused, e.Counted = n, counted
		e.Violations, e.Delay, e.Watched = b.count, b.delay, h.watched || b.count > 0
	}
	return out
}
