// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/audit"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
	"github.com/kerf-gpu/kerf/sharing/node/record"
)

// AwaitWitness tells that a container runtime will call Witness. Where no record says what runs, nothing is
// granted before: containers may be running on what would be given away.
func (r *Runtime) AwaitWitness() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recovery.Expected = true
}

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
		admitted, err := admittedOf(s)
		if err == nil && !admitted.Guarded {
			continue
		}
		r.ContainerMade(s.ID, s.Note)
		if r.accounted(s) {
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
		r.recovery.Listed = true
	}
	r.recovery.Unaccounted = len(alarms)
	r.conditions.Set(conditions.Unaccounted, joinSentences(alarms))
	r.mu.Unlock()
	if changed {
		r.verifySoon()
	}
	r.wake()
	r.changed.announce()
	return errors.Join(r.persist(), ctx.Err())
}

// admittedOf is what guards the container. One that is no pod's may have an amount that no ask can name.
func admittedOf(s sharing.Seen) (sharing.Admitted, error) {
	if s.Grant != "" && len(s.CDINames) == 1 && s.CDINames[0] == sharing.GuardDevice {
		return sharing.Admitted{Guarded: true}, nil
	}
	return sharing.AdmittedBy(s.CDINames)
}

// accounted reports whether the container is known as it was seen: leased, being armed or ended just now, or
// injected while it does not run.
func (r *Runtime) accounted(s sharing.Seen) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if id, known := r.containers[s.ID]; known {
		g, _ := r.ledger.Get(id)
		h := r.held[id]
		return !s.Running || g.Lease != nil || h == nil || h.busy
	}
	// The next instance was injected already, and this one has the lease still.
	return slices.ContainsFunc(r.ledger.Grants(), func(g ledger.Grant) bool { return g.Lease != nil && g.Lease.ContainerID == s.ID })
}

// recognise books the grant of one guarded container that is not accounted for. It reports whether it booked
// anything.
func (r *Runtime) recognise(s sharing.Seen, asks []sharing.Ask) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
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
	if s.Grant != "" && s.Grant == rec.ID { // no pod's: its annotation is older than its id
		h.use, h.container = &use{containerID: s.ID, asks: h.asks}, true
	}
	if h.use != nil {
		h.use.made = madeWith
	}
	if h.use == nil || h.use.containerID != s.ID || !slices.Equal(h.use.asks, asks) || rec.PodUID != s.Ref.PodUID || h.use.container != s.Ref.Container {
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
		if h.group, err = r.groupOfContainer(s.PID, s.ID); err != nil {
			return err
		}
		h.hasGroup = true
	}
	g, exists := r.ledger.Get(c.ID)
	old := r.held[c.ID]
	if old != nil {
		r.reopen(c.ID, old) // the container was made with it
	}
	switch {
	case exists && old != nil && (!h.hasGroup || formerOver(g, old, s.ID)):
		r.rebind(old, h.use, c.ID) // it waits for its hook, and the hook for the end of the instance before it
		return nil
	case exists && g.Lease == nil && old != nil && !old.busy:
		if err := r.ledger.Adopt(c.ID, *h.lease()); err != nil {
			return err
		}
		r.watcher.Add(h.group)
		old.group, old.hasGroup = h.group, true
		r.rebind(old, h.use, c.ID)
		return nil
	case exists:
		return fmt.Errorf("its claim %q is in use by another container: %w", c.ID, sharing.ErrConflict)
	case h.hasGroup:
		c.Recovered = true
		return r.adopt(c, h)
	case !c.Owner.Pod():
		return fmt.Errorf("its claim %q ended with the agent that held it: %w", c.ID, sharing.ErrNotFound)
	}
	// It does not run yet, so it is booked only if there is still room.
	if err := r.ledger.Claim(c); err != nil {
		return err
	}
	r.notify.Audit.Claim(audit.Claim, c, h.backend, "the container runtime tells of its container", nil)
	r.held[c.ID] = h
	r.reopen(c.ID, h)
	r.containers[h.use.containerID] = c.ID
	return nil
}

// formerOver reports whether an instance before this one has the lease, and only nobody has looked yet that it
// ended. It needs the lock.
func formerOver(g ledger.Grant, h *holding, containerID string) bool {
	if g.Lease == nil || g.Lease.ContainerID == containerID {
		return false
	}
	over, err := empty(h.group)
	return over && err == nil
}

// rebind makes a container instance the next user of a claim. It needs the lock.
func (r *Runtime) rebind(h *holding, u *use, id ledger.ClaimID) {
	if h.use != nil {
		delete(r.containers, h.use.containerID)
	}
	h.use = u
	r.containers[u.containerID] = id
}

// groupOfContainer opens the cgroup that bears the container's id. The process may be in one beneath it by
// now; one that is in neither is another's, which has the pid that the container's had.
func (r *Runtime) groupOfContainer(pid int, containerID string) (cgroup.Group, error) {
	dir, err := r.opt.Cgroups.OfProcess(pid)
	if err != nil {
		return cgroup.Group{}, fmt.Errorf("cgroup of process %d: %w", pid, err)
	}
	for d := dir; len(containerID) >= minContainerID && len(d) > len(r.opt.Cgroups.Mount); d = path.Dir(d) {
		if strings.Contains(path.Base(d), containerID) {
			return r.opt.Cgroups.Open(d, 0)
		}
	}
	return cgroup.Group{}, fmt.Errorf("process %d is in cgroup %q, which is not the container's: %w", pid, dir, sharing.ErrStale)
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

// ContainerMade tells that the container runtime has made a container that our guard is on, and the note that
// it carries: that of its grant if it was made with what Inject gave, else none. Without having heard either
// of a container, the runtime arms no claim of a pod for it.
func (r *Runtime) ContainerMade(containerID, note string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id, known := r.containers[containerID]
	h := r.held[id]
	if !known || h == nil || h.use == nil || h.use.made != madeUnknown {
		return
	}
	h.use.made = madeWithout
	if rec, err := record.DecodeGrant(note); err == nil && rec.ID == string(id) {
		h.use.made = madeWith
	}
}

// ContainerGone tells that a container instance ended or was removed: its lease is looked at now, not at the
// next reconcile. Nothing is concluded from it: the cgroup and the driver tell.
func (r *Runtime) ContainerGone(string) { r.wake() }
