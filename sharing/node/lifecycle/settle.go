// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// reopen finds what enforces a grant that was found again.
func (r *Finder) reopen(l *ledger.Ledger, g ledger.Grant) {
	// A crash may have come between the record and the region, and what it is lent is in the region alone. At a start the
	// books are whole only after the last of those that share a cap.
	if found := r.BackendOf(g, r.Driver.Get()).Recover(GrantOf(l, g)); found && g.Lease != nil && r.Recovery.Get().Restored {
		r.settle(l, g)
	}
}

// settleAll is settle for all leases that were found at a start.
func (r *Finder) settleAll(l *ledger.Ledger) {
	for _, g := range l.Grants() {
		if g.Lease != nil && r.Libkerf.Whole(string(g.Claim.ID)) {
			r.settle(l, g)
		}
	}
}

// settle brings the caps of a lease that was found again and the books to the same: what it is lent is in its region
// alone.
func (r *Finder) settle(l *ledger.Ledger, g ledger.Grant) {
	r.Libkerf.Settle(GrantOf(l, g), g.Caps(), func(f sharing.Fragment, have sharing.Bytes) (sharing.Fragment, bool) {
		return judgeCap(l, g, f, have, nil)
	})
}
