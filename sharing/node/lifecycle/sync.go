// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

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
	"github.com/kerf-gpu/kerf/sharing/node/recovery"
	"github.com/kerf-gpu/kerf/sharing/node/store"
)

// AwaitRuntimeSync announces that a container runtime will report its containers. Without a checkpoint, no grant is
// possible before: containers may run on any GPU.
func (r *Finder) AwaitRuntimeSync() {
	r.Recovery.Set(func(f *recovery.Facts) { f.Expected = true })
}

// SyncRuntime takes in the containers that the container runtime has of all pods, at a moment when none is being made.
// It restores attachments that the checkpoint does not have, by the annotation that Inject gave the container. The
// annotation counts only together with the hook device. It releases instances that are gone. It reports containers with
// the hook device and without a grant, which must not be.
func (r *Finder) SyncRuntime(ctx context.Context, seen []sharing.Seen) error {
	return r.witness(ctx, seen, true)
}

// CrossCheck is SyncRuntime for a list that was made while containers may have been created: a missing one proves
// nothing.
func (r *Finder) CrossCheck(ctx context.Context, seen []sharing.Seen) error {
	return r.witness(ctx, seen, false)
}

func (r *Finder) witness(ctx context.Context, seen []sharing.Seen, complete bool) error {
	changed := false
	listed := map[string]bool{}
	var alarms []string
	for _, s := range seen {
		if s.Removed {
			continue
		}
		listed[s.ID] = true
		admitted, err := admittedOf(s)
		if err == nil && !admitted.Guarded {
			continue
		}
		r.ContainerMade(s.ID, s.Annotation)
		if r.Accounted(s) {
			continue
		}
		var found bool
		if err == nil {
			found, err = r.recognise(s, admitted.Requests)
		}
		changed = changed || found
		if err != nil && s.Running {
			alarms = append(alarms, fmt.Sprintf("container %s (%s) runs without a grant that can be accounted for: %v",
				s.Ref, s.ID, err))
		} else if err != nil {
			r.Log.Warn("found container without a grant, will reject its start", "container", s.Ref.String(),
				"container_id",
				s.ID, "reason", err.Error())
		}
	}
	_ = r.Store.UpdateLater(func(l *ledger.Ledger) error {
		if complete {
			r.letGoOf(l, listed)
		}
		r.Recovery.Set(func(f *recovery.Facts) { f.Listed, f.Unaccounted = f.Listed || complete, len(alarms) })
		r.Conditions.Set(conditions.Unaccounted, JoinSentences(alarms))
		return nil
	})
	if changed {
		r.VerifySoon()
	}
	r.Wake()
	r.Announce()
	return errors.Join(r.Store.Save(), ctx.Err())
}

// admittedOf is what guards the container. One that is no pod's may have an amount that no ask can name.
func admittedOf(s sharing.Seen) (sharing.Admitted, error) {
	if s.Grant != "" && len(s.CDINames) == 1 && s.CDINames[0] == sharing.HookDevice {
		return sharing.Admitted{Guarded: true}, nil
	}
	return sharing.AdmittedBy(s.CDINames)
}

// Accounted reports whether the container is known as it was seen: active, being activated or ended just now, or
// injected while it does not run.
func (r *Finder) Accounted(s sharing.Seen) bool {
	g, known := r.Store.ByContainerID(s.ID)
	return known && (!s.Running || g.Active != nil || g.Work != ledger.NoWork)
}

// recognise adds the grant of one container with a hook device that the ledger lacks. It reports whether it added
// one.
func (r *Finder) recognise(s sharing.Seen, asks []sharing.ResourceRequest) (bool, error) {
	if s.Annotation == "" {
		return false, fmt.Errorf("it was made without one: %w", sharing.ErrNotFound)
	}
	rec, err := record.DecodeGrant(s.Annotation)
	if err != nil {
		return false, err
	}
	c, a, err := store.Read(rec)
	if err != nil {
		return false, err
	}
	if s.Grant != "" && s.Grant == rec.ID { // no pod's: its annotation is older than its id
		a, c.Standalone = ledger.Attachment{ContainerID: s.ID, Requests: c.Requests}, true
	}
	if a.ContainerID != s.ID || !slices.Equal(a.Requests, asks) || rec.PodUID != s.Ref.PodUID ||
		a.Container != s.Ref.Container {
		return false, fmt.Errorf("its annotation is not of this container with these amounts: %w", sharing.ErrInvalid)
	}
	a.State, a.Cgroup, a.Inode = ledger.Injected, "", 0
	return true, r.Store.UpdateLater(func(l *ledger.Ledger) error { return r.rebook(l, s, c, a) })
}

// rebook enters a container that the record does not know.
func (r *Finder) rebook(l *ledger.Ledger, s sharing.Seen, c ledger.Reservation, a ledger.Attachment) error {
	runs := s.Running && s.PID > 0
	if runs {
		group, err := r.groupOfContainer(s.PID, s.ID)
		if err != nil {
			return err
		}
		a.Cgroup, a.Inode = group.Dir, group.Inode
	}
	g, exists := l.Get(c.ID)
	if exists {
		r.reopen(l, g) // the container was made with it
	}
	switch {
	case exists && (!runs || formerOver(g, r.Cgroups, s.ID)):
		return l.Assign(c.ID, a) // it waits for its hook, and the hook for the end of the instance before it
	case exists && g.Active == nil && g.Work == ledger.NoWork:
		if err := l.Adopt(c.ID, a); err != nil {
			return err
		}
		r.Watcher.Add(r.GroupOf(a))
		return l.Unassign(c.ID)
	case exists:
		return fmt.Errorf("its grant %q is in use by another container: %w", c.ID, sharing.ErrConflict)
	case runs:
		c.Recovered = true
		return r.adopt(l, c, a)
	case !c.Owner.Pod():
		return fmt.Errorf("its grant %q ended with the agent that held it: %w", c.ID, sharing.ErrNotFound)
	}
	// It does not run yet, so it is booked only if there is still room.
	if err := l.Reserve(c); err != nil {
		return err
	}
	r.Notify.Audit.Grant(audit.Reserve, c, c.Backend, "the container runtime tells of its container", nil)
	r.Handles.Add(c.ID, nil)
	err := l.Assign(c.ID, a)
	g, _ = l.Get(c.ID)
	r.reopen(l, g)
	return err
}

// formerOver reports whether an instance before this one has the grant, and no check has shown yet that it ended.
func formerOver(g ledger.Grant, in cgroup.Hierarchy, containerID string) bool {
	if g.Active == nil || g.Active.ContainerID == containerID {
		return false
	}
	over, err := empty(in.Group(g.Active.Cgroup, g.Active.Inode))
	return over && err == nil
}

// groupOfContainer opens the cgroup that bears the container's id. The process may be in one beneath it by
// now; one that is in neither is another's, which has the pid that the container's had.
func (r *Finder) groupOfContainer(pid int, containerID string) (cgroup.Group, error) {
	dir, err := r.Cgroups.OfProcess(pid)
	if err != nil {
		return cgroup.Group{}, fmt.Errorf("cgroup of process %d: %w", pid, err)
	}
	for d := dir; len(containerID) >= minContainerID && len(d) > len(r.Cgroups.Mount); d = path.Dir(d) {
		if strings.Contains(path.Base(d), containerID) {
			return r.Cgroups.Open(d, 0)
		}
	}
	return cgroup.Group{}, fmt.Errorf("process %d is in cgroup %q, which is not the container's: %w", pid, dir,
		sharing.ErrStale)
}

// letGoOf unbinds pods' containers that the runtime no longer lists and that use nothing.
func (r *Finder) letGoOf(l *ledger.Ledger, listed map[string]bool) {
	for _, g := range l.Grants() {
		if g.Next == nil || g.Work != ledger.NoWork || g.Active != nil || !g.Owner.Pod() ||
			listed[g.Next.ContainerID] {
			continue
		}
		if err := l.Unassign(g.ID); err != nil {
			r.Log.Error("failed to remove attachment of container", "grant", g.ID, "error", err.Error())
		}
	}
}

// ContainerMade reports that the container runtime has created a container with Kerf's hook device, and the annotation
// on it. That is its grant's if it was created with what Inject gave, else none. Before this or Inject, no grant of a
// pod is activated for the container.
func (r *Finder) ContainerMade(containerID, note string) {
	rec, err := record.DecodeGrant(note)
	_ = r.Store.UpdateLater(func(l *ledger.Ledger) error {
		id, _ := l.ByContainerID(containerID)
		l.Created(containerID, err == nil && rec.ID == string(id))
		return nil
	})
}

// ContainerRemoved tells that a container instance ended or was removed: its attachment is looked at now. Nothing is
// concluded from it: the cgroup and the driver tell.
func (r *Finder) ContainerRemoved(containerID string) {
	if g, ok := r.Store.ByContainerID(containerID); ok {
		r.queue.Add(g.ID)
	}
}
