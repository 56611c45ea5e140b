// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"

	"github.com/kerf-gpu/kerf/sharing"
)

// Withdraw says that a claim ends once nothing uses it. It is the caller's to release it then.
func (x *index) Withdraw(id ClaimID, why Withdrawal) {
	if e, ok := x.claims[id]; ok && e.withdrawn == NotWithdrawn {
		x.touch(e)
		e.withdrawn = why
	}
}

// Keep takes back that a claim ends, if that was said for one of these reasons.
func (x *index) Keep(id ClaimID, reasons ...Withdrawal) {
	for _, why := range reasons {
		if e, ok := x.claims[id]; ok && why != NotWithdrawn && e.withdrawn == why {
			x.touch(e)
			e.withdrawn = NotWithdrawn
		}
	}
}

// Begin notes that something is being done with the grant. The error wraps ErrNotFound for an unknown claim and
// ErrConflict while anything else is being done with it.
func (x *index) Begin(id ClaimID, work Work) error {
	e, ok := x.claims[id]
	switch {
	case !ok:
		return fmt.Errorf("begin work on claim %q: %w", id, sharing.ErrNotFound)
	case e.work != NoWork:
		return fmt.Errorf("begin work on claim %q: something is being done with it: %w", id, sharing.ErrConflict)
	}
	x.touch(e)
	e.work = work
	return nil
}

// Done notes that nothing is being done with the grant any more.
func (x *index) Done(id ClaimID) {
	if e, ok := x.claims[id]; ok && e.work != NoWork {
		x.touch(e)
		e.work = NoWork
	}
}

// SetTerms changes what the ledger keeps of a claim and decides nothing by. It reports whether there is such a claim.
func (x *index) SetTerms(id ClaimID, change func(*Terms)) bool {
	e, ok := x.claims[id]
	if ok {
		x.touch(e)
		change(&e.claim.Terms)
	}
	return ok
}

// SetChecks changes the check results of a container's attachment, or with an empty ID of the attachment of a process
// outside of pods. It reports whether the grant has such an attachment.
func (x *index) SetChecks(id ClaimID, containerID string, change func(*Checks)) bool {
	e, ok := x.claims[id]
	if !ok {
		return false
	}
	for _, a := range []*Attachment{e.lease, e.next} {
		if a != nil && a.ContainerID == containerID {
			x.touch(e)
			change(&a.Checks)
			return true
		}
	}
	return false
}
