// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"

	"github.com/kerf-gpu/kerf/sharing"
)

// Activated records that the cap of the Activating attachment is enforced. The attachment becomes Active, and is the
// grant's attachment.
//
// Activated checks the grant again: the GPUs must be healthy and have the capacity. A grant fails this if its GPU has
// become smaller since.
//
// Errors: ErrNotFound for an unknown grant; ErrConflict for one that is not Activating. ErrLost or ErrUnavailable for a
// lost or unhealthy GPU; ErrExhausted for a GPU without enough free capacity.
func (l *Ledger) Activated(id GrantID) error {
	e, ok := l.grants[id]
	switch {
	case !ok:
		return fmt.Errorf("activate grant %q: %w", id, sharing.ErrNotFound)
	case e.next == nil || e.next.State != Activating:
		return fmt.Errorf("activate grant %q: no activation has begun: %w", id, sharing.ErrConflict)
	}
	inForce := e.grant.Placement
	if len(e.next.Part) > 0 {
		inForce = e.next.Part
	}
	for _, f := range inForce {
		page := l.gpus[f.GPU]
		err := page.alive()
		if err == nil && l.companions.counts(e, f, true) {
			err = page.room(page.active, f)
		}
		if err != nil {
			return fmt.Errorf("activate grant %q: gpu %q: %w", id, f.GPU, err)
		}
	}
	l.setActive(e, *e.next)
	return nil
}

// Adopt makes an enforced attachment a grant's attachment, such as a container that was found running. It does not
// check GPUs. The attachment counts with its maximum burst memory, as in Restore. A second call with the same
// attachment changes nothing.
//
// ErrInvalid: an attachment without cgroup or inode, or with a part outside the grant. ErrNotFound: an unknown grant.
// ErrConflict: another attachment has or activates the grant, or another grant has the cgroup or container.
func (l *Ledger) Adopt(id GrantID, a Attachment) error {
	e, ok := l.grants[id]
	if !ok {
		return fmt.Errorf("adopt attachment of grant %q: %w", id, sharing.ErrNotFound)
	}
	var err error
	switch {
	case e.active != nil && e.active.Cgroup == a.Cgroup && e.active.Inode == a.Inode &&
		e.active.ContainerID == a.ContainerID:
		return nil
	case e.active != nil:
		err = fmt.Errorf("in use by cgroup %q: %w", e.active.Cgroup, sharing.ErrConflict)
	case e.next != nil && e.next.State == Activating:
		err = fmt.Errorf("cgroup %q is activating it: %w", e.next.Cgroup, sharing.ErrConflict)
	default:
		err = l.checkActive(e.grant, a)
	}
	if err != nil {
		return fmt.Errorf("adopt attachment of grant %q: %w", id, err)
	}
	l.setActive(e, a)
	l.assumeBurst(e)
	return nil
}

// EndAttachment tells that a grant's cgroup is empty. A pod's grant is then Reserved again, until its pod is
// released; any other is gone. The error wraps ErrNotFound for an unknown grant and one that is not active.
func (l *Ledger) EndAttachment(id GrantID) error {
	e, ok := l.grants[id]
	switch {
	case !ok:
		return fmt.Errorf("end attachment of grant %q: %w", id, sharing.ErrNotFound)
	case e.active == nil:
		return fmt.Errorf("end attachment of grant %q: it has none: %w", id, sharing.ErrNotFound)
	}
	l.clearActive(e)
	if !e.grant.Owner.Pod() {
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
			return fmt.Errorf("gpu %q: the part in use is not within the grant: %w", f.GPU, sharing.ErrInvalid)
		}
	}
	return nil
}

// Covers reports whether what asks for inner can use outer instead: no more memory and compute, and alone on
// the GPU only where outer is.
func Covers(outer, inner sharing.Share) bool {
	// The amount of a whole GPU is 0 where it is unknown.
	return outer.GPU == inner.GPU && outer.Whole == inner.Whole && outer.MIG == inner.MIG &&
		(inner.Memory > 0 || inner.Whole) && inner.Memory <= outer.Memory && inner.Percent <= outer.Percent
}
