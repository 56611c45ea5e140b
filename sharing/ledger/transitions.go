// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"

	"github.com/kerf-gpu/kerf/sharing"
)

// Reserve reserves c as a whole, or changes nothing. It checks that every share is what the request gives on that
// GPU, and that the GPU has capacity. The GPU may have changed since the allocator chose it.
//
// Errors:
//   - ErrInvalid for a wrong grant.
//   - ErrConflict for a taken ID or name, or a container that has a grant.
//   - ErrNotFound for an unknown GPU.
//   - ErrLost, ErrUnavailable or ErrUnsupported for a GPU that is lost, not healthy, cordoned or in MIG mode.
//   - ErrStale for a GPU whose capacity has changed.
//   - ErrExhausted for a GPU without enough free capacity.
//
// A grant that has the devices of another, see DevicesKey, needs no capacity. For a grant with a shared cap,
// ErrNotFound means that the other grant is unknown. ErrInvalid means that the other one has another pod, other GPUs,
// or itself uses another's cap.
func (l *Ledger) Reserve(c Reservation) error {
	if err := l.checkIdentity(c); err != nil {
		return fmt.Errorf("grant %q: %w", c.ID, err)
	}
	check := l.checkNew
	if l.companions.have(c) {
		check = l.checkCompanion
	}
	if err := check(c); err != nil {
		return fmt.Errorf("grant %q: %w", c.ID, err)
	}
	if err := l.enter(c, nil); err != nil {
		return err
	}
	l.grants[c.ID].fresh = c.Owner.Pod()
	return nil
}

// checkNew checks a grant that takes capacity of its GPUs.
func (l *Ledger) checkNew(c Reservation) error {
	if err := l.checkPlacement(c); err != nil {
		return err
	}
	if err := l.checkWith(c); err != nil {
		return err
	}
	for _, f := range c.Placement {
		if err := l.checkRoom(f); err != nil {
			return fmt.Errorf("gpu %q: %w", f.GPU, err)
		}
	}
	return nil
}

// Release drops a grant that no attachment uses.
//
// Errors: ErrNotFound for an unknown grant; ErrConflict while it is active or being activated, or while another
// grant is active that shares its cap.
func (l *Ledger) Release(id GrantID) error {
	e, ok := l.grants[id]
	switch {
	case !ok:
		return fmt.Errorf("release grant %q: %w", id, sharing.ErrNotFound)
	case e.active != nil:
		return fmt.Errorf("release grant %q: in use by cgroup %q: %w", id, e.active.Cgroup, sharing.ErrConflict)
	}
	if e.next != nil && e.next.State == Activating {
		return fmt.Errorf("release grant %q: cgroup %q is activating it: %w", id, e.next.Cgroup, sharing.ErrConflict)
	}
	if other, used := inUse(l.sharers(e.grant), e); used {
		return fmt.Errorf("release grant %q: grant %q shares its cap, and is active: %w", id, other,
			sharing.ErrConflict)
	}
	l.drop(e)
	return nil
}

// Assign makes a container instance the next to use a grant, in the place of one that was assigned before. The
// attachment is Assigned. It is Injected if a says that the container was created with the devices of the grant.
//
// Errors: ErrNotFound for an unknown grant. ErrInvalid for no container or a part that is not within the grant.
// ErrConflict for a container that uses a grant already, and while an attachment of the grant is Activating.
func (l *Ledger) Assign(id GrantID, a Attachment) error {
	e, ok := l.grants[id]
	if !ok {
		return fmt.Errorf("assign grant %q: %w", id, sharing.ErrNotFound)
	}
	err := checkPart(e.grant.Placement, a.Part)
	user, taken := l.containers[a.ContainerID]
	switch {
	case err != nil:
	case a.ContainerID == "":
		err = fmt.Errorf("no container: %w", sharing.ErrInvalid)
	case taken && (user != id || e.active != nil && e.active.ContainerID == a.ContainerID):
		err = fmt.Errorf("container %q uses grant %q: %w", a.ContainerID, user, sharing.ErrConflict)
	case e.next != nil && e.next.State == Activating:
		err = fmt.Errorf("container %q is activating it: %w", e.next.ContainerID, sharing.ErrConflict)
	}
	if err != nil {
		return fmt.Errorf("assign grant %q: %w", id, err)
	}
	if a.State != Injected {
		a.State = Assigned
	}
	a.Cgroup, a.Inode = "", 0
	l.setNext(e, &a)
	e.fresh = false
	return nil
}

// Created tells that the container runtime has created a container, and whether with what its grant gives. An
// Assigned attachment is Injected then, or Rejected. Any other stays as it is.
func (l *Ledger) Created(containerID string, injected bool) {
	e, ok := l.grants[l.containers[containerID]]
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
func (l *Ledger) Unassign(id GrantID) error {
	e, ok := l.grants[id]
	if !ok || e.next == nil {
		return nil
	}
	if e.next.State == Activating {
		return fmt.Errorf("unassign grant %q: container %q is activating it: %w", id, e.next.ContainerID,
			sharing.ErrConflict)
	}
	l.setNext(e, nil)
	return nil
}

// Activate records the cgroup whose cap is to be set. It is that of the Injected container that is next to use the
// grant or, without a container, of a process outside of pods. The attachment is Activating until Activated or Fail.
//
// Errors: ErrNotFound for an unknown grant; ErrInvalid without cgroup and inode, or for a container that is not
// Injected. ErrConflict while the grant is in use, or another activates it, and for a cgroup in use.
func (l *Ledger) Activate(id GrantID, containerID, cgroup string, inode uint64) error {
	e, ok := l.grants[id]
	if !ok {
		return fmt.Errorf("activate grant %q: %w", id, sharing.ErrNotFound)
	}
	next := Attachment{}
	if containerID != "" && e.next != nil {
		next = *e.next
	}
	var err error
	switch {
	case e.active != nil:
		err = fmt.Errorf("in use by cgroup %q: %w", e.active.Cgroup, sharing.ErrConflict)
	case e.next != nil && e.next.State == Activating:
		err = fmt.Errorf("cgroup %q is activating it: %w", e.next.Cgroup, sharing.ErrConflict)
	case containerID == "" && e.next != nil:
		err = fmt.Errorf("container %q is to use it: %w", e.next.ContainerID, sharing.ErrConflict)
	case next.ContainerID != containerID || containerID != "" && next.State != Injected:
		err = fmt.Errorf("container %q was not created with it: %w", containerID, sharing.ErrInvalid)
	}
	next.State, next.Cgroup, next.Inode = Activating, cgroup, inode
	if err == nil {
		err = l.checkActive(e.grant, next)
	}
	if err != nil {
		return fmt.Errorf("activate grant %q: %w", id, err)
	}
	l.setNext(e, &next)
	e.fresh = false
	return nil
}

// Fail records that the cap could not be set. A container is Injected again and may retry. The attachment of a
// process outside of pods is removed. If no activation has begun, nothing changes.
func (l *Ledger) Fail(id GrantID) {
	e, ok := l.grants[id]
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

// Drained tells whether no process is in the cgroup of the attachment: it is Releasing then, else Active. Of a grant
// without an attachment, nothing changes.
func (l *Ledger) Drained(id GrantID, empty bool) {
	state := Active
	if empty {
		state = Releasing
	}
	if e, ok := l.grants[id]; ok && e.active != nil && e.active.State != state {
		l.touch(e)
		e.active.State = state
	}
}
