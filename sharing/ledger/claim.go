// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"

	"github.com/kerf-gpu/kerf/sharing"
)

// Claim reserves c as a whole, or changes nothing. It checks that every share is what the request gives on that GPU,
// and that the GPU has capacity. The GPU may have changed since the allocator chose it.
//
// Errors:
//   - ErrInvalid for a wrong claim.
//   - ErrConflict for a taken ID or name, or a container that has a claim.
//   - ErrNotFound for an unknown GPU.
//   - ErrLost, ErrUnavailable or ErrUnsupported for a GPU that is lost, not healthy, cordoned or in MIG mode.
//   - ErrStale for a GPU whose capacity has changed.
//   - ErrExhausted for a GPU without enough free capacity.
//
// For a claim with a shared cap, ErrNotFound means that the other claim is unknown. ErrInvalid means that the other
// one has another pod, other GPUs, or itself uses another's cap.
func (l *Ledger) Claim(c Claim) error {
	if err := l.checkIdentity(c); err != nil {
		return fmt.Errorf("claim %q: %w", c.ID, err)
	}
	if err := l.checkPlacement(c); err != nil {
		return fmt.Errorf("claim %q: %w", c.ID, err)
	}
	if err := l.checkWith(c); err != nil {
		return fmt.Errorf("claim %q: %w", c.ID, err)
	}
	for _, f := range c.Placement {
		if err := l.checkRoom(f); err != nil {
			return fmt.Errorf("claim %q: gpu %q: %w", c.ID, f.GPU, err)
		}
	}
	if err := l.enter(c, nil); err != nil {
		return err
	}
	l.claims[c.ID].fresh = c.Owner.Pod()
	return nil
}

// Release drops a grant without an attachment. The error wraps ErrNotFound for an unknown grant. It wraps ErrConflict
// while the grant is active or being activated, or one that shares its cap is: that one may use this one's memory.
func (l *Ledger) Release(id ClaimID) error {
	e, ok := l.claims[id]
	switch {
	case !ok:
		return fmt.Errorf("release claim %q: %w", id, sharing.ErrNotFound)
	case e.lease != nil:
		return fmt.Errorf("release claim %q: leased to cgroup %q: %w", id, e.lease.Cgroup, sharing.ErrConflict)
	}
	if e.next != nil && e.next.State == Activating {
		return fmt.Errorf("release claim %q: cgroup %q is activating it: %w", id, e.next.Cgroup, sharing.ErrConflict)
	}
	if other, used := l.inUse(e); used {
		return fmt.Errorf("release claim %q: claim %q shares its cap, and is leased: %w", id, other,
			sharing.ErrConflict)
	}
	l.drop(e)
	return nil
}
