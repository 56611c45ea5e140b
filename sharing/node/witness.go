// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/node/record"
)

// Witness takes in what the container runtime says of all pods' containers, at a moment when none is being
// made. It finds again what the record does not know, by the annotation that Inject gave the container and
// that counts only together with our guard; it lets go of instances that are gone; and it tells of containers
// that run guarded and without a grant, which must not be.
func (r *Runtime) Witness(ctx context.Context, seen []sharing.Seen) error {
	return r.witness(ctx, seen, true)
}

// CrossCheck is Witness for a list that was taken while containers may have been made: one that is missing
// from it means nothing.
func (r *Runtime) CrossCheck(ctx context.Context, seen []sharing.Seen) error {
	return r.witness(ctx, seen, false)
}

func (r *Runtime) witness(ctx context.Context, seen []sharing.Seen, complete bool) error {
	changed := false
	listed := map[string]bool{}
	var alarms []string
	for _, s := range seen {
		if s.Gone {
			continue
		}
		listed[s.ID] = true
		admitted, err := sharing.AdmittedBy(s.CDINames)
		if err == nil && !admitted.Guarded {
			continue
		}
		var found bool
		if err == nil {
			found, err = r.recognise(s, admitted.Asks)
		}
		changed = changed || found
		if err != nil && s.Running {
			alarms = append(alarms, fmt.Sprintf("container %s (%s) runs without a grant that can be accounted for: %v", s.Ref, s.ID, err))
		} else if err != nil {
			r.log.Warn("container has no grant; its start will be refused", "container", s.Ref.String(), "container_id", s.ID, "reason", err.Error())
		}
	}
	r.mu.Lock()
	if complete {
		r.letGoOf(listed)
		r.witnessed = true
	}
	r.setCondition(r.warnings, "unaccounted", joinSentences(alarms))
	r.mu.Unlock()
	if changed {
		r.verifySoon()
	}
	r.wake()
	r.changed.announce()
	return errors.Join(r.persist(), ctx.Err())
}

// recognise finds or books the grant of one guarded container. It reports whether it booked anything.
func (r *Runtime) recognise(s sharing.Seen, asks []sharing.Ask) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if id, known := r.containers[s.ID]; known {
		g, _ := r.ledger.Get(id)
		h := r.held[id]
		if !s.Running || g.Lease != nil || h == nil || h.busy {
			return false, nil
		}
	}
	if g, ok := r.ledger.ByContainer(s.Ref.PodUID, s.Ref.Container); ok && g.Lease != nil && g.Lease.ContainerID == s.ID {
		return false, nil
	}
	if s.Note == "" {
		return false, fmt.Errorf("it was made without one: %w", sharing.ErrNotFound)
	}
	rec, err := record.DecodeGrant(s.Note)
	if err != nil {
		return false, err
	}
	h, err := holdingOf(rec)
	if err != nil {
		return false, err
	}
	if h.use == nil || h.use.containerID != s.ID || !slices.Equal(h.use.asks, asks) {
		return false, fmt.Errorf("its annotation is not of this container with these amounts: %w", sharing.ErrInvalid)
	}
	return true, r.rebook(s, rec, h)
}

// rebook enters a container that the record does not know. It needs the lock.
func (r *Runtime) rebook(s sharing.Seen, rec record.Grant, h *holding) error {
	c, err := claimOf(rec)
	if err != nil {
		return err
	}
	if s.Running && s.PID > 0 {
		dir, err := r.opt.Cgroups.OfProcess(s.PID)
		if err == nil {
			h.group, err = r.opt.Cgroups.Open(dir, 0)
		}
		if err != nil {
			return fmt.Errorf("cgroup of process %d: %w", s.PID, err)
		}
		h.hasGroup = true
	}
	g, exists := r.ledger.Get(c.ID)
	switch {
	case exists && g.Lease == nil && r.held[c.ID] != nil && !r.held[c.ID].busy:
		old := r.held[c.ID]
		old.use, old.group, old.hasGroup = h.use, h.group, h.hasGroup
		r.containers[h.use.containerID] = c.ID
		if !h.hasGroup {
			return nil
		}
		r.watcher.Add(h.group)
		return r.ledger.Adopt(c.ID, *h.lease())
	case exists:
		return fmt.Errorf("its claim %q is in use by another container: %w", c.ID, sharing.ErrConflict)
	case h.hasGroup:
		c.Recovered = true
		return r.adopt(c, h)
	}
	// It does not run yet, so it is booked only if there is still room.
	if err := r.ledger.Claim(c); err != nil {
		return err
	}
	r.held[c.ID] = h
	r.containers[h.use.containerID] = c.ID
	return nil
}

// letGoOf unbinds pods' containers that the runtime no longer lists and that use nothing. It needs the lock.
func (r *Runtime) letGoOf(listed map[string]bool) {
	for _, g := range r.ledger.Grants() {
		h := r.held[g.Claim.ID]
		if h == nil || h.use == nil || h.busy || g.Lease != nil || !g.Claim.Owner.Pod() || listed[h.use.containerID] {
			continue
		}
		delete(r.containers, h.use.containerID)
		h.use = nil
	}
}

// ContainerGone tells that a container instance ended or was removed: its lease is looked at now, not at the
// next reconcile. Nothing is concluded from it: the cgroup and the driver tell.
func (r *Runtime) ContainerGone(string) { r.wake() }
