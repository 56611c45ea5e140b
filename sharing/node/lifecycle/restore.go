// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/kerf-gpu/kerf/internal/atomicfile"
	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/choice"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
	"github.com/kerf-gpu/kerf/sharing/node/record"
	"github.com/kerf-gpu/kerf/sharing/node/recovery"
	"github.com/kerf-gpu/kerf/sharing/node/store"
)

// Restore recovers the state of a former agent: attachments from the checkpoint whose cgroup still has processes, and
// Kerf's cgroups that no checkpoint has. First it returns the processes of unfinished activations. It needs no
// driver. It rejects a checkpoint of a newer schema, and changes nothing then. It sets a damaged checkpoint aside and
// reads the previous one. What is in neither comes from cgroups and driver.
func (r *Finder) Restore(ctx context.Context) error {
	r.recoverEntries()
	if err := atomicfile.CleanTemp(filepath.Dir(r.Record)); err != nil {
		return fmt.Errorf("clean up next to the checkpoint: %w", err)
	}
	found, err := r.Store.Load()
	if err != nil {
		return err
	}
	if err := r.Store.UpdateLater(func(l *ledger.Ledger) error { return r.restoreAll(l, found) }); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	// An agent that cannot write still watches, verifies and ends what it found. It grants nothing new, says why, and
	// tries again.
	if err := r.Store.Save(); err != nil {
		r.Log.Error("failed to write checkpoint at start", "error", err.Error())
	}
	return nil
}

func (r *Finder) restoreAll(l *ledger.Ledger, found store.Loaded) error {
	r.Recovery.Set(func(f *recovery.Facts) { f.Unrecorded, f.Damaged = found.Unrecorded, found.Damaged })
	known := map[string]bool{}
	for _, g := range found.Grants {
		known[g.Cgroup] = true
		if err := r.restoreGrant(l, g); err != nil {
			return fmt.Errorf("restore grant %q: %w", g.ID, err)
		}
	}
	r.settleAll(l)
	if err := r.findOrphans(known); err != nil {
		return err
	}
	// If the checkpoint was lost, some of the regions may belong to grants that run. So all stay until the next start.
	if !found.Unrecorded {
		r.Libkerf.Sweep()
	}
	r.enableDmem()
	r.Recovery.Set(func(f *recovery.Facts) { f.Restored = true })
	return nil
}

// enableDmem makes the kernel's controller of device memory available to our cgroups, where there is one: the
// driver's limits are then kept by it. Whether limits work is what the probe tells, so an error is a warning.
func (r *Finder) enableDmem() {
	has, err := r.Cgroups.HasDmem()
	if err == nil && has {
		if _, err = r.Cgroups.Create(r.Parent); err == nil || errors.Is(err, sharing.ErrConflict) {
			err = r.Cgroups.Enable(r.Parent, "dmem")
		}
	}
	if err != nil {
		r.Log.Warn("failed to enable dmem controller for cgroups", "cgroup", r.Parent, "error", err.Error())
	}
}

// restoreGrant takes a recorded grant back: with its attachment if its cgroup has processes. The grant of a pod's
// container stays without one too, until kubelet has forgotten the pod; any other ended.
func (r *Finder) restoreGrant(l *ledger.Ledger, rec record.Grant) error {
	c, a, err := store.Read(rec)
	if err != nil {
		return err
	}
	if a.Cgroup != "" {
		_, err = r.Cgroups.Open(a.Cgroup, a.Inode)
	}
	switch {
	case errors.Is(err, sharing.ErrNotFound) || errors.Is(err, sharing.ErrStale):
		r.Log.Info("released grant that ended without an agent", "grant", rec.ID, "reason", err.Error())
		a = ledger.Attachment{}
	case err != nil:
		return err
	}
	if a.Cgroup == "" && !c.Owner.Pod() {
		return nil
	}
	if err := r.adopt(l, c, a); err != nil {
		return err
	}
	if rec.ClaimEnded {
		l.Withdraw(c.ID, ledger.ClaimEnded)
	}
	return nil
}

// adopt adds a grant as a fact, with its attachment, which is enforced if it has a cgroup. The next reconcile ends
// one with an empty cgroup, and clears its caps.
func (r *Finder) adopt(l *ledger.Ledger, c ledger.Reservation, a ledger.Attachment) error {
	var active *ledger.Attachment
	if a.Cgroup != "" {
		active = &a
	}
	if err := l.Restore(c, active); err != nil {
		return err
	}
	r.Handles.Add(c.ID, nil)
	if active == nil && a.ContainerID != "" {
		if err := l.Assign(c.ID, a); err != nil {
			return err
		}
	}
	if g, _ := l.Get(c.ID); g.Active != nil || g.Next != nil {
		r.reopen(l, g)
	}
	if active != nil {
		r.Watcher.Add(r.GroupOf(a))
		r.Observer.Recovered()
	}
	r.Log.Info("recovered grant", "grant", c.ID, "name", c.Name, "pod", c.Owner.Namespace+"/"+c.Owner.PodName,
		"container", c.Owner.Container, "cgroup", a.Cgroup, "level", c.Level.String())
	return nil
}

// findOrphans lists Kerf's cgroups that the checkpoint does not know. It removes empty ones (a crash came before the
// checkpoint). Others wait until a driver reports what they may use.
func (r *Finder) findOrphans(known map[string]bool) error {
	names, err := r.Cgroups.Children(r.Parent)
	if err != nil && !errors.Is(err, sharing.ErrNotFound) {
		return fmt.Errorf("list cgroups of grants: %w", err)
	}
	for _, name := range names {
		dir := filepath.Join(r.Cgroups.Mount, r.Parent, name)
		if known[dir] {
			continue
		}
		g, err := r.Cgroups.Open(dir, 0)
		if err != nil {
			return fmt.Errorf("cgroup of a grant: %w", err)
		}
		populated, err := g.Populated()
		if err != nil {
			return fmt.Errorf("cgroup %q: %w", g.Dir, err)
		}
		if populated {
			r.Recovery.Set(func(f *recovery.Facts) { f.Orphans = append(f.Orphans, g) })
			continue
		}
		if err := g.Remove(); err != nil {
			return fmt.Errorf("remove empty cgroup %q: %w", g.Dir, err)
		}
		r.Log.Info("removed empty cgroup of an unfinished activation", "cgroup", g.Dir)
	}
	return nil
}

// Recover adds the cgroups that no checkpoint has, from the driver's limits for them. A limit is a share. The least
// limit is a GPU that the cgroup may not use, and no limit is one that it may use as a whole.
func (r *Finder) Recover(ctx context.Context, orphans []cgroup.Group) {
	for _, group := range orphans {
		id := ledger.GrantID(filepath.Base(group.Dir))
		placement, level := r.readPlacement(ctx, group)
		backend, from := choice.OfLevel(level), "the driver's limits"
		// The driver's limits hold more strongly, where it has them.
		if p, ok := r.Libkerf.Found(string(id)); ok && level != sharing.LevelDriver {
			placement, level, backend, from = p, sharing.LevelUserspace, libkerf.Kind, "its region"
		}
		c := ledger.Reservation{
			ID: id, Placement: placement, Recovered: true, Request: store.RequestOf(sharing.Request{}, placement,
				false),
			Terms: ledger.Terms{Level: level, Backend: backend, LevelReason: "rebuilt from the cgroup and " + from +
				": the record was lost"},
		}
		err := r.Store.UpdateLater(func(l *ledger.Ledger) error {
			return r.adopt(l, c, ledger.Attachment{Cgroup: group.Dir, Inode: group.Inode})
		})
		if err == nil {
			_ = r.Store.Save() // an error stays a condition until a later write succeeds
		} else {
			r.Conditions.SetOf(conditions.Orphan, group.Dir,
				fmt.Sprintf("cgroup %s has processes that cannot be accounted for (%v): end them and restart the agent",
					group.Dir, err))
		}
	}
}

func (r *Finder) readPlacement(ctx context.Context, group cgroup.Group) (sharing.Placement, sharing.Level) {
	ctx, cancel := context.WithTimeout(ctx, CapDeadline)
	defer cancel()
	att := *r.Driver.Get()
	var p sharing.Placement
	// confirmed stays true while the driver reports the cap of the cgroup for every GPU.
	confirmed, shared := att.Caps != nil, false
	for _, g := range att.GPUs {
		if g.MIG || g.Ref().IsInstance() {
			continue
		}
		f := sharing.Share{GPU: g.Ref(), Memory: g.Usable(), Percent: sharing.FullGPU, Whole: true}
		if att.Caps != nil && !g.SystemMemory {
			limit, _, err := att.Caps.Read(ctx, group.Dir, g.Ref())
			if err == nil && limit <= att.Caps.Least() {
				continue
			}
			if err == nil {
				f, shared = sharing.Share{GPU: g.Ref(), Memory: limit}, true
			} else if !errors.Is(err, sharing.ErrNotFound) {
				confirmed = false // it may hold all of it
			}
		}
		p = append(p, f)
	}
	switch {
	case !confirmed:
		return p, sharing.LevelUnknown
	case shared:
		return p, sharing.LevelDriver
	}
	return p, sharing.LevelExclusive
}

// reopen finds what enforces a grant that was found again.
func (r *Finder) reopen(l *ledger.Ledger, g ledger.Grant) {
	// A crash may have come between the checkpoint and the usage file, and only the usage file has the burst memory.
	// At a start the ledger is complete only after the last grant with a shared cap.
	if found := r.BackendOf(g, r.Driver.Get()).Recover(GrantOf(l, g)); found && g.Active != nil &&
		r.Recovery.Get().Restored {
		r.settle(l, g)
	}
}

// settleAll is settle for all attachments that were found at a start.
func (r *Finder) settleAll(l *ledger.Ledger) {
	for _, g := range l.Grants() {
		if g.Active != nil && r.Libkerf.Whole(string(g.ID)) {
			r.settle(l, g)
		}
	}
}

// settle makes ledger and caps of a recovered attachment equal. Only its usage file has its burst memory.
func (r *Finder) settle(l *ledger.Ledger, g ledger.Grant) {
	r.Libkerf.Settle(GrantOf(l, g), g.Caps(), func(f sharing.Share, have sharing.Bytes) (sharing.Share, bool) {
		return judgeCap(l, g, f, have, nil)
	})
}
