// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"

	"github.com/kerf-gpu/kerf/sharing"
)

// enter adds a checked grant as a whole, or changes nothing. The error wraps ErrInvalid if a sum does not fit in 64
// bits.
func (l *Ledger) enter(c Reservation, active *Attachment) error {
	for _, f := range c.Placement {
		if page, ok := l.gpus[f.GPU]; ok {
			if _, err := page.held.with(f); err != nil {
				return fmt.Errorf("grant %q: gpu %q: %w", c.ID, f.GPU, err)
			}
		}
	}
	e := l.add(c)
	for _, f := range e.grant.Placement {
		if page := l.page(f.GPU); l.companions.counts(e, f, false) {
			page.held, _ = page.held.with(f) // checked above; no GPU is twice in a placement
		}
	}
	if active != nil {
		l.setActive(e, *active)
	}
	return nil
}

// attachment records that a checked attachment is enforced. It is not the next one any more.
func (l *Ledger) setActive(e *entry, a Attachment) {
	a.State = Active
	if e.next != nil && e.next.ContainerID == a.ContainerID {
		l.setNext(e, nil)
	}
	l.touch(e)
	e.active, e.fresh = a.clone(), false
	l.cgroups[a.Cgroup] = e.grant.ID
	if a.ContainerID != "" {
		l.containers[a.ContainerID] = e.grant.ID
	}
	for _, f := range e.inForce() {
		if page := l.gpus[f.GPU]; l.companions.counts(e, f, true) {
			page.active, _ = page.active.with(f) // active <= held, which does not wrap
		}
	}
}

// unlease takes the attachment back.
func (l *Ledger) clearActive(e *entry) {
	l.touch(e)
	delete(l.cgroups, e.active.Cgroup)
	delete(l.containers, e.active.ContainerID)
	for _, f := range e.inForce() {
		if page := l.gpus[f.GPU]; l.companions.counts(e, f, true) {
			page.active = page.active.without(f)
		}
	}
	for id, burstNow := range e.burst {
		page := l.gpus[id]
		page.burst = page.burst.SubFloor(burstNow)
		page.relieve()
	}
	e.active, e.burst = nil, nil
}

// drop removes a grant without an attachment.
func (l *Ledger) drop(e *entry) {
	l.setNext(e, nil)
	l.remove(e)
	for _, f := range e.grant.Placement {
		page := l.gpus[f.GPU]
		if l.companions.counts(e, f, false) {
			page.held = page.held.without(f)
		}
		page.relieve()
		l.tidy(f.GPU)
	}
}

// Restore adds a grant that is known to exist, with its attachment if it is in use. It accepts a grant that does not
// fit, and a GPU of any health or one that no inventory had. View.Overbooked then reports this, and the ledger grants
// nothing more there.
//
// An attachment counts with its maximum burst memory until SetBurst reports the real amount. A grant may have no
// shares: a cgroup that runs and reaches no GPU. It shares a cap with the grant that it names, even if that grant comes
// later or was removed. Restore drops a name that is invalid or taken, because losing the name is better than losing
// the grant.
//
// Errors change nothing. ErrInvalid: an empty ID, two shares on one GPU, more than 100 percent, a sum over 64 bits, or
// an attachment without cgroup and inode. ErrConflict: a taken ID, a cgroup in use, or a container that uses another
// grant.
func (l *Ledger) Restore(c Reservation, active *Attachment) error {
	if err := l.checkRestore(c, active); err != nil {
		return fmt.Errorf("restore grant %q: %w", c.ID, err)
	}
	if _, taken := l.names[c.Name]; taken || sharing.ValidateName("name", c.Name) != nil {
		c.Name = ""
	}
	if c.With == c.ID {
		c.With = ""
	}
	if err := l.enter(c, active); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	for _, f := range c.Placement {
		l.gpus[f.GPU].excuse()
	}
	if active != nil {
		l.assumeBurst(l.grants[c.ID])
	}
	return nil
}

func (l *Ledger) checkRestore(c Reservation, active *Attachment) error {
	if c.ID == "" {
		return fmt.Errorf("no id: %w", sharing.ErrInvalid)
	}
	if _, taken := l.grants[c.ID]; taken {
		return fmt.Errorf("id is taken: %w", sharing.ErrConflict)
	}
	if err := distinct(c.Placement); err != nil {
		return err
	}
	for _, f := range c.Placement {
		if f.GPU == (sharing.GPURef{}) || f.Percent > sharing.FullGPU || f.MIG.Start < 0 || f.MIG.Size < 0 ||
			f.MIG.Start+f.MIG.Size > maxUnits {
			return fmt.Errorf("share %+v is impossible: %w", f, sharing.ErrInvalid)
		}
	}
	if active == nil {
		return nil
	}
	return l.checkActive(c, *active)
}
