// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"

	"github.com/kerf-gpu/kerf/sharing"
)

// Assign makes a container instance the next to use a claim, in the place of one that was assigned before. The
// attachment is Assigned, or Injected if a says so: it is then known that the container was created with what the grant
// gives.
//
// Errors: ErrNotFound for an unknown grant; ErrInvalid for no container or a part that is not within the grant.
// ErrConflict for a container that uses a grant already, and while an attachment of the grant is Activating.
func (l *Ledger) Assign(id ClaimID, a Attachment) error {
	e, ok := l.claims[id]
	if !ok {
		return fmt.Errorf("assign claim %q: %w", id, sharing.ErrNotFound)
	}
	err := checkPart(e.claim.Placement, a.Part)
	user, taken := l.containers[a.ContainerID]
	switch {
	case err != nil:
	case a.ContainerID == "":
		err = fmt.Errorf("no container: %w", sharing.ErrInvalid)
	case taken && (user != id || e.lease != nil && e.lease.ContainerID == a.ContainerID):
		err = fmt.Errorf("container %q uses claim %q: %w", a.ContainerID, user, sharing.ErrConflict)
	case e.next != nil && e.next.State == Activating:
		err = fmt.Errorf("container %q is activating it: %w", e.next.ContainerID, sharing.ErrConflict)
	}
	if err != nil {
		return fmt.Errorf("assign claim %q: %w", id, err)
	}
	if a.State != Injected {
		a.State = Assigned
	}
	a.Cgroup, a.Inode = "", 0
	l.setNext(e, &a)
	e.fresh = false
	return nil
}

// Created tells that the container runtime has created a container, and whether with what its grant gives. An Assigned
// attachment is Injected then, or Rejected. Any other stays as it is.
func (l *Ledger) Created(containerID string, injected bool) {
	e, ok := l.claims[l.containers[containerID]]
	if !ok || e.next == nil || e.next.ContainerID != containerID || e.next.State != Assigned {
		return
	}
	l.touch(e)
	if e.next.State = Rejected; injected {
		e.next.State = Injected
	}
}

// Unassign removes the container that is the next to use a grant. If there is none, or no such grant, it changes
// nothing. The error wraps ErrConflict while the attachment is Activating.
func (l *Ledger) Unassign(id ClaimID) error {
	e, ok := l.claims[id]
	if !ok || e.next == nil {
		return nil
	}
	if e.next.State == Activating {
		return fmt.Errorf("unassign claim %q: container %q is activating it: %w", id, e.next.ContainerID,
			sharing.ErrConflict)
	}
	l.setNext(e, nil)
	return nil
}

// Activate records the cgroup whose cap is to be set. It is that of the Injected container that is next to use the
// grant or, without a container, of a process outside of pods. The attachment is Activating until Arm or Fail.
//
// Errors: ErrNotFound for an unknown grant; ErrInvalid without cgroup and inode, or for a container that is not
// Injected. ErrConflict while the grant is in use, or another activates it, and for a cgroup in use.
func (l *Ledger) Activate(id ClaimID, containerID, cgroup string, inode uint64) error {
	e, ok := l.claims[id]
	if !ok {
		return fmt.Errorf("activate claim %q: %w", id, sharing.ErrNotFound)
	}
	next := Attachment{}
	if containerID != "" && e.next != nil {
		next = *e.next
	}
	var err error
	switch {
	case e.lease != nil:
		err = fmt.Errorf("leased to cgroup %q: %w", e.lease.Cgroup, sharing.ErrConflict)
	case e.next != nil && e.next.State == Activating:
		err = fmt.Errorf("cgroup %q is activating it: %w", e.next.Cgroup, sharing.ErrConflict)
	case containerID == "" && e.next != nil:
		err = fmt.Errorf("container %q is to use it: %w", e.next.ContainerID, sharing.ErrConflict)
	case next.ContainerID != containerID || containerID != "" && next.State != Injected:
		err = fmt.Errorf("container %q was not created with it: %w", containerID, sharing.ErrInvalid)
	}
	next.State, next.Cgroup, next.Inode = Activating, cgroup, inode
	if err == nil {
		err = l.checkLease(e.claim, next)
	}
	if err != nil {
		return fmt.Errorf("activate claim %q: %w", id, err)
	}
	l.setNext(e, &next)
	e.fresh = false
	return nil
}

// Fail records that the cap could not be set. A container is Injected again and may retry. The attachment of a process
// outside of pods is removed. If no activation has begun, nothing changes.
func (l *Ledger) Fail(id ClaimID) {
	e, ok := l.claims[id]
	if !ok || e.next == nil || e.next.State != Activating {
		return
	}
	if e.next.ContainerID == "" {
		l.setNext(e, nil)
		return
	}
	next := *e.next
	next.State, next.Cgroup, next.Inode, next.Checks = Injected, "", 0, Checks{InjectTook: next.InjectTook}
	l.setNext(e, &next)
}

// Drained tells whether no process is in the cgroup of the lease: it is Releasing then, else Active. Of a claim without
// a lease, nothing changes.
func (l *Ledger) Drained(id ClaimID, empty bool) {
	state := Active
	if empty {
		state = Releasing
	}
	if e, ok := l.claims[id]; ok && e.lease != nil && e.lease.State != state {
		l.touch(e)
		e.lease.State = state
	}
}
