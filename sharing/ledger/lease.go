// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"

	"github.com/kerf-gpu/kerf/sharing"
)

// Arm records that the cap of the Activating attachment is enforced. The attachment becomes Active, and is the
// claim's lease.
//
// Arm checks the claim again: the GPUs must be healthy and have the capacity. A claim fails this if its GPU has
// become smaller since.
//
// Errors: ErrNotFound for an unknown grant; ErrConflict for one that is not Activating. ErrLost or ErrUnavailable for a
// lost or unhealthy GPU; ErrExhausted for a GPU without enough free capacity.
func (l *Ledger) Arm(id ClaimID) error {
	e, ok := l.claims[id]
	switch {
	case !ok:
		return fmt.Errorf("arm claim %q: %w", id, sharing.ErrNotFound)
	case e.next == nil || e.next.State != Activating:
		return fmt.Errorf("activate claim %q: no activation has begun: %w", id, sharing.ErrConflict)
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

// Adopt makes an enforced attachment a claim's lease, such as a container that was found running. It does not check
// GPUs. The lease counts with its maximum burst memory, as in Restore. A second call with the same attachment changes
// nothing.
//
// ErrInvalid: an attachment without cgroup or inode, or with a part outside the claim. ErrNotFound: an unknown claim.
// ErrConflict: another attachment has or activates the claim, or another claim has the cgroup or container.
func (l *Ledger) Adopt(id ClaimID, a Attachment) error {
	e, ok := l.claims[id]
	if !ok {
		return fmt.Errorf("adopt lease of claim %q: %w", id, sharing.ErrNotFound)
	}
	var err error
	switch {
	case e.lease != nil && e.lease.Cgroup == a.Cgroup && e.lease.Inode == a.Inode &&
		e.lease.ContainerID == a.ContainerID:
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
	l.assumeBurst(e)
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
func Covers(outer, inner sharing.Share) bool {
	return outer.GPU == inner.GPU && outer.Whole == inner.Whole && outer.MIG == inner.MIG && inner.Memory > 0 &&
		inner.Memory <= outer.Memory && inner.Percent <= outer.Percent
}
