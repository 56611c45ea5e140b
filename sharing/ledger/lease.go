// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"

	"github.com/kerf-gpu/kerf/sharing"
)

// Arm makes a claim leased. To arm it again with the very same lease changes nothing and is no error, since
// a hook may ask twice.
//
// What is armed is in force, so it is checked once more: its GPUs must be healthy, and must have it beside
// all that is leased there; a claim that was booked before the GPU shrank may fail this.
//
// Errors: ErrInvalid for a lease without cgroup or inode or with a part that is not within the claim, ErrNotFound for an unknown claim, ErrConflict for
// one that is leased to another cgroup or a cgroup that is leased to another claim, ErrStale for one that is
// leased to an earlier cgroup of the same name, ErrLost or ErrUnavailable for a GPU that is lost or not
// healthy, ErrExhausted where the GPU has no longer room.
func (l *Ledger) Arm(id ClaimID, lease Lease) error {
	e, err := l.armable(id, lease)
	if err != nil {
		return fmt.Errorf("arm claim %q: %w", id, err)
	}
	if e.lease != nil {
		return nil
	}
	inForce := e.claim.Placement
	if len(lease.Part) > 0 {
		inForce = lease.Part
	}
	for _, f := range inForce {
		page := l.gpus[f.GPU]
		err := page.alive()
		if err == nil {
			err = page.room(page.leased, f)
		}
		if err != nil {
			return fmt.Errorf("arm claim %q: gpu %q: %w", id, f.GPU, err)
		}
	}
	l.lease(e, lease)
	return nil
}

// Adopt is Arm for a lease that is already a fact, such as a process that cannot be taken out of its cgroup
// again: GPUs are not asked, and it counts as lent all that it may be, as in Restore. Its other errors are those of Arm.
func (l *Ledger) Adopt(id ClaimID, lease Lease) error {
	e, err := l.armable(id, lease)
	if err != nil {
		return fmt.Errorf("adopt lease of claim %q: %w", id, err)
	}
	if e.lease == nil {
		l.lease(e, lease)
		l.assumeLent(e)
	}
	return nil
}

// EndLease tells that a claim's cgroup is empty. A pod's claim is then Claimed again, until its pod is
// released; any other is gone. The error wraps ErrNotFound for an unknown claim and one that is not leased.
func (l *Ledger) EndLease(id ClaimID) error {
	e, ok := l.claims[id]
	switch {
	case !ok:
		return fmt.Errorf("end lease of claim %q: %w", id, sharing.ErrNotFound)
	case e.lease == nil:
		return fmt.Errorf("end lease of claim %q: it has none: %w", id, sharing.ErrNotFound)
	}
	l.unlease(e)
	if !e.claim.Owner.Pod() {
		l.drop(e)
	}
	return nil
}

// checkPart checks that part lies within p.
func checkPart(p, part sharing.Placement) error {
	if err := distinct(part); err != nil {
		return err
	}
	for _, f := range part {
		if whole, ok := p.On(f.GPU); !ok || !Covers(whole, f) {
			return fmt.Errorf("gpu %q: the part in use is not within the claim: %w", f.GPU, sharing.ErrInvalid)
		}
	}
	return nil
}

// Covers reports whether what asks for inner can use outer instead: no more memory and compute, and alone on
// the GPU only where outer is.
func Covers(outer, inner sharing.Fragment) bool {
	return outer.GPU == inner.GPU && outer.Whole == inner.Whole && outer.MIG == inner.MIG && inner.Memory > 0 && inner.Memory <= outer.Memory && inner.Percent <= outer.Percent
}
