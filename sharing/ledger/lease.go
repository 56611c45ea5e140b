// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"

	"github.com/kerf-gpu/kerf/sharing"
)

// Arm tells that the cap of the attachment that was Activating is in force: it is Active, and the claim's lease.
//
// What is armed is in force, so it is checked once more: its GPUs must be healthy, and must have it beside
// all that is leased there; a claim that was booked before the GPU shrank may fail this.
//
// Errors: ErrNotFound for an unknown claim, ErrConflict for one that nobody activates, ErrLost or ErrUnavailable for a GPU that is lost or not
// healthy, ErrExhausted where the GPU has no longer room.
func (l *Ledger) Arm(id ClaimID) error {
	e, ok := l.claims[id]
	switch {
	case !ok:
		return fmt.Errorf("arm claim %q: %w", id, sharing.ErrNotFound)
	case e.next == nil || e.next.State != Activating:
		return fmt.Errorf("arm claim %q: nobody activates it: %w", id, sharing.ErrConflict)
	}
	inForce := e.claim.Placement
	if len(e.next.Part) > 0 {
		inForce = e.next.Part
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
	l.lease(e, *e.next)
	return nil
}

// Adopt makes an attachment a claim's lease that is in force already, such as a container that was found running: GPUs are not
// asked, and it counts as lent all that it may be, as in Restore. To adopt the very same again changes nothing.
//
// Errors: ErrInvalid for an attachment without cgroup or inode or with a part that is not within the claim, ErrNotFound for an
// unknown claim, ErrConflict for one that is leased to, or activated by, another, and for a cgroup or a container that is another claim's.
func (l *Ledger) Adopt(id ClaimID, a Attachment) error {
	e, ok := l.claims[id]
	if !ok {
		return fmt.Errorf("adopt lease of claim %q: %w", id, sharing.ErrNotFound)
	}
	var err error
	switch {
	case e.lease != nil && e.lease.Cgroup == a.Cgroup && e.lease.Inode == a.Inode && e.lease.ContainerID == a.ContainerID:
		return nil
	case e.lease != nil:
		err = fmt.Errorf("leased to cgroup %q: %w", e.lease.Cgroup, sharing.ErrConflict)
	case e.next != nil && e.next.State == Activating:
		err = fmt.Errorf("cgroup %q is activating it: %w", e.next.Cgroup, sharing.ErrConflict)
	default:
		err = l.checkLease(e.claim, a)
	}
	if err != nil {
		return fmt.Errorf("adopt lease of claim %q: %w", id, err)
	}
	l.lease(e, a)
	l.assumeLent(e)
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
