// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"time"

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

// capEventsOf has an entry for each fragment of a lease, and is nil where another one speaks for all that share its cap.
// It needs the lock.
func (r *Runtime) capEventsOf(g ledger.Grant) []CapEvents {
	if g.Lease == nil || r.speaker(g) != g.Claim.ID {
		return nil
	}
	refused, found := r.libkerf.Refused(string(g.Claim.ID)), r.guard.Of(g.Claim.ID)
	out := make([]CapEvents, len(g.Claim.Placement))
	for i, f := range g.Claim.Placement {
		e := &out[i]
		n, counted := refused[f.GPU]
		e.Refused, e.Counted = n, counted
		e.Violations, e.Delay = found.Breaches(f.GPU)
		e.Watched = found.Watched || e.Violations > 0
	}
	return out
}
