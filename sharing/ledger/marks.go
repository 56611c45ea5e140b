// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"

	"github.com/kerf-gpu/kerf/sharing"
)

// Withdraw says that a grant ends once nothing uses it. It is the caller's to release it then. The first reason stays,
// unless ClaimEnded follows.
func (x *index) Withdraw(id GrantID, why Withdrawal) {
	if e, ok := x.grants[id]; ok && (e.withdrawn == NotWithdrawn || why == ClaimEnded) {
		x.touch(e)
		e.withdrawn = why
	}
}

// CancelWithdrawal takes back that a grant ends, if that was said for one of these reasons.
func (x *index) CancelWithdrawal(id GrantID, reasons ...Withdrawal) {
	for _, why := range reasons {
		if e, ok := x.grants[id]; ok && why != NotWithdrawn && e.withdrawn == why {
			x.touch(e)
			e.withdrawn = NotWithdrawn
		}
	}
}

// Begin notes that something is being done with the grant. The error wraps ErrNotFound for an unknown grant and
// ErrConflict while anything else is being done with it.
func (x *index) Begin(id GrantID, work Work) error {
	e, ok := x.grants[id]
	switch {
	case !ok:
		return fmt.Errorf("begin work on grant %q: %w", id, sharing.ErrNotFound)
	case e.work != NoWork:
		return fmt.Errorf("begin work on grant %q: something is being done with it: %w", id, sharing.ErrConflict)
	}
	x.touch(e)
	e.work = work
	return nil
}

// Done notes that nothing is being done with the grant any more.
func (x *index) Done(id GrantID) {
	if e, ok := x.grants[id]; ok && e.work != NoWork {
		x.touch(e)
		e.work = NoWork
	}
}

// SetTerms changes what the ledger keeps of a grant and decides nothing by. It reports whether there is such a grant.
func (x *index) SetTerms(id GrantID, change func(*Terms)) bool {
	e, ok := x.grants[id]
	if ok {
		x.touch(e)
		change(&e.grant.Terms)
	}
	return ok
}

// SetChecks changes the check results of a container's attachment, or with an empty ID of the attachment of a process
// outside of pods. It reports whether the grant has such an attachment.
func (x *index) SetChecks(id GrantID, containerID string, change func(*Checks)) bool {
	e, ok := x.grants[id]
	if !ok {
		return false
	}
	for _, a := range []*Attachment{e.active, e.next} {
		if a != nil && a.ContainerID == containerID {
			x.touch(e)
			change(&a.Checks)
			return true
		}
	}
	return false
}
