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

// Restore finds again what a former agent held: leases from the record whose cgroup still has processes, and
// cgroups of ours that no record tells of. First it returns the processes of unfinished activations. It needs no driver. A
// record of a newer schema is an error and nothing is touched. One that is damaged is put aside, and the one before it
// counts. What is in neither is told by cgroups and driver.
func (r *Finder) Restore(ctx context.Context) error {
	r.recoverEntries()
	if err := atomicfile.CleanTemp(filepath.Dir(r.Record)); err != nil {
		return fmt.Errorf("clean up beside the record: %w", err)
	}
	found, err := r.Store.Load()
	if err != nil {
		return err
	}
	if err := r.Store.Note(func(l *ledger.Ledger) error { return r.restoreAll(l, found) }); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	// An agent that cannot write still watches, verifies and ends what it found. It grants nothing new, says why, and
	// tries again.
	if err := r.Store.Save(); err != nil {
		r.Log.Error("failed to write record at start", "error", err.Error())
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
	// If the record was lost, some of the regions may turn out to be those of grants that run, and all stay until the next start.
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
		r.Log.Warn("dmem controller not enabled for our cgroups", "cgroup", r.Parent, "error", err.Error())
	}
}

// restoreGrant takes a recorded grant back: with its lease if its cgroup has processes. The claim of a pod's
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
		r.Log.Info("lease ended while no agent ran", "claim", rec.ID, "reason", err.Error())
		a = ledger.Attachment{}
	case err != nil:
		return err
	}
	if a.Cgroup == "" && !c.Owner.Pod() {
		return nil
	}
	return r.adopt(l, c, a)
}

// adopt books a claim as a fact, with its attachment: in force if it has a cgroup. A cgroup that is empty already is ended
// by the reconcile that follows, with caps cleared.
func (r *Finder) adopt(l *ledger.Ledger, c ledger.Claim, a ledger.Attachment) error {
	var lease *ledger.Attachment
	if a.Cgroup != "" {
		lease = &a
	}
	if err := l.Restore(c, lease); err != nil {
		return err
	}
	r.Handles.Add(c.ID, nil)
	if lease == nil && a.ContainerID != "" {
		if err := l.Assign(c.ID, a); err != nil {
			return err
		}
	}
	if g, _ := l.Get(c.ID); g.Lease != nil || g.Next != nil {
		r.reopen(l, g)
	}
	if lease != nil {
		r.Watcher.Add(r.GroupOf(a))
		r.Observer.Recovered()
	}
	r.Log.Info("grant found again", "claim", c.ID, "name", c.Name, "pod", c.Owner.Namespace+"/"+c.Owner.PodName, "container", c.Owner.Container, "cgroup", a.Cgroup, "level", c.Level.String())
	return nil
}

// findOrphans lists our cgroups that the record does not know: empty ones are removed (a crash came before
// the record), others wait for a driver that tells what they may use.
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
		r.Log.Info("empty cgroup of an unfinished arm removed", "cgroup", g.Dir)
	}
	return nil
}

// Recover books the cgroups that no record tells of, from the limits that the driver holds for them: a limit
// is a fragment, the least limit is a GPU it may not use, no limit is a GPU that it may use whole.
func (r *Finder) Recover(ctx context.Context, orphans []cgroup.Group) {
	for _, group := range orphans {
		id := ledger.ClaimID(filepath.Base(group.Dir))
		placement, level := r.readPlacement(ctx, group)
		backend, from := choice.OfLevel(level), "the driver's limits"
		// The driver's limits hold more strongly, where it has them.
		if p, ok := r.Libkerf.Found(string(id)); ok && level != sharing.LevelDriver {
			placement, level, backend, from = p, sharing.LevelClient, libkerf.Kind, "its region"
		}
		c := ledger.Claim{
			ID: id, Placement: placement, Recovered: true, Request: store.RequestOf(sharing.Request{}, placement, false),
			Terms: ledger.Terms{Level: level, Backend: backend, LevelReason: "rebuilt from the cgroup and " + from + ": the record was lost"},
		}
		err := r.Store.Note(func(l *ledger.Ledger) error {
			return r.adopt(l, c, ledger.Attachment{Cgroup: group.Dir, Inode: group.Inode})
		})
		if err == nil {
			_ = r.Store.Save() // an error stays a condition until a later write succeeds
		} else {
			r.Conditions.SetOf(conditions.Orphan, group.Dir, fmt.Sprintf("cgroup %s has processes that cannot be accounted for (%v): end them and restart the agent", group.Dir, err))
		}
	}
}

func (r *Finder) readPlacement(ctx context.Context, group cgroup.Group) (sharing.Placement, sharing.Level) {
	ctx, cancel := context.WithTimeout(ctx, CapDeadline)
	defer cancel()
	att := *r.Driver.Get()
	var p sharing.Placement
	// told stays true while the driver says of every GPU what the cgroup may use of it.
	told, shared := att.Caps != nil, false
	for _, g := range att.GPUs {
		if g.MIG || g.Ref().IsInstance() {
			continue
		}
		f := sharing.Fragment{GPU: g.Ref(), Memory: g.Usable(), Percent: sharing.FullGPU, Whole: true}
		if att.Caps != nil {
			limit, _, err := att.Caps.Read(ctx, group.Dir, g.Ref())
			if err == nil && limit <= att.Caps.Least() {
				continue
			}
			if err == nil {
				f, shared = sharing.Fragment{GPU: g.Ref(), Memory: limit}, true
			} else if !errors.Is(err, sharing.ErrNotFound) {
				told = false // it may hold all of it
			}
		}
		p = append(p, f)
	}
	switch {
	case !told:
		return p, sharing.LevelUnknown
	case shared:
		return p, sharing.LevelDriver
	}
	return p, sharing.LevelExclusive
}
