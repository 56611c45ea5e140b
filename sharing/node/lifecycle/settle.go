// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// reopen finds what enforces a grant that was found again. It needs the lock.
func (r *Finder) reopen(g ledger.Grant) {
	// A crash may have come between the record and the region, and what it is lent is in the region alone. At a start the
	// books are whole only after the last of those that share a cap.
	if found := r.BackendOf(g, r.Driver.Get()).Recover(r.GrantOf(g)); found && g.Lease != nil && r.Recovery.Restored {
		r.settle(g)
	}
}

// settleAll is settle for all leases that were found at a start. It needs the lock.
func (r *Finder) settleAll() {
	for _, g := range r.ledger.Grants() {
		if g.Lease != nil && r.Libkerf.Whole(string(g.Claim.ID)) {
			r.settle(g)
		}
	}
}

// settle brings the caps of a lease that was found again and the books to the same: what it is lent is in its region
// alone. It needs the lock.
func (r *Finder) settle(g ledger.Grant) {
	r.Libkerf.Settle(r.GrantOf(g), g.Caps(), func(f sharing.Fragment, have sharing.Bytes) (sharing.Fragment, bool) {
		return r.caps.judgeCap(g, f, have, nil)
	})
}
