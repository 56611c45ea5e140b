// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/audit"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/gpudriver"
)

// errKept marks an activate that went wrong with the process already in its cgroup: the attachment stays.
var errKept = errors.New("attachment kept")

// Activated is what a process needs to know once it is in its cgroup.
type Activated struct {
	ID ledger.GrantID
	// Own and Others are the GPUs that it was given, in the order of the placement, and those that it was not.
	Own, Others []sharing.GPU
	// OthersCapped is true when the others carry the least limit for this cgroup.
	OthersCapped bool
	// Mounts are what the process mounts, in this order, in a private mount namespace before it continues. Without
	// them nothing rejects its allocations. Preload is the library for it and its children.
	Mounts  []sharing.Mount
	Preload string
	// MPS is what the process must have in its environment to be a client of the MPS that holds it.
	MPS map[string]string
	// Device is the MIG instance that it was given; the zero value where it was given none.
	Device sharing.MIGDevice
}

// ActivateOptions are what a process says of itself when it activates.
type ActivateOptions struct {
	// NoPreloadFile says that the process cannot mount over /etc/ld.so.preload, or would lose what stands in it: the
	// library is then named by the environment.
	NoPreloadFile bool
}

// Activate sets the grant's cap on a new cgroup, reads it back, and moves the calling process into it, see package
// entry. Only the process that reserved may call it. A process that may already have GPU memory is rejected:
// sharing.ErrConflict. On any error the process is back where it came from, and cgroup, cap and grant are removed.
//
// The agent may crash at any point. Until the process is moved, the cgroup is empty, and the next start removes it.
// Until the process is checked, it is frozen, and the next start returns it. After that, the next start finds the
// attachment.
//
// Activate sets the cap before the move, so that a slow driver delays no frozen process.
func (r *Activator) Activate(ctx context.Context, peer Peer, id ledger.GrantID) (Activated, error) {
	return r.ActivateWith(ctx, peer, id, ActivateOptions{})
}

// ActivateWith is Activate with options.
func (r *Activator) ActivateWith(ctx context.Context, peer Peer, id ledger.GrantID, with ActivateOptions) (Activated,
	error) {
	start := time.Now()
	grant, owner, att, err := r.beginActivate(peer, id)
	if err != nil {
		return Activated{}, err
	}
	// The caller may go away at any moment; what was begun is finished or undone all the same.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), CapDeadline)
	defer cancel()
	activated, err := r.activate(ctx, grant, owner, att, with)
	g, undone, err := r.endActivate(grant, err)
	if undone {
		r.Backends(nil).Clean(ctx)
		err = errors.Join(err, r.Store.Save())
	}
	r.Observer.Activated(time.Since(start), err)
	r.Notify.Audit.Grant(audit.Activate, grant, grant.Backend, "", err)
	r.Announce()
	if err != nil {
		r.Log.Error("failed to activate grant", "grant", id, "pid", peer.PID, "error", err.Error())
		return Activated{}, fmt.Errorf("activate %q: %w", id, err)
	}
	r.Log.Info("activated grant", "grant", id, "pid", peer.PID, "cgroup", g.Newest().Cgroup, "took",
		time.Since(start).String())
	return activated, nil
}

// endActivate notes how the activation ended. Unless the attachment stays, an error ends the grant.
func (r *Activator) endActivate(grant ledger.Reservation, activateErr error) (g ledger.Grant, undone bool, err error) {
	undone = activateErr != nil && !errors.Is(activateErr, errKept)
	err = r.Store.UpdateLater(func(l *ledger.Ledger) error {
		l.Done(grant.ID)
		if !undone {
			r.Handles.LetGo(grant.ID)
			g, _ = l.Get(grant.ID)
			return nil
		}
		l.Fail(grant.ID)
		err := r.Drop(l, grant.ID)
		r.Forget(l, ledger.Grant{Reservation: grant}) // its attachment may have ended already
		return err
	})
	return g, undone, errors.Join(activateErr, err)
}

// beginActivate checks that the peer may activate the grant, and begins.
func (r *Activator) beginActivate(peer Peer, id ledger.GrantID) (c ledger.Reservation, owner *process.Handle,
	att gpudriver.Attached, err error) {
	err = r.Store.UpdateLater(func(l *ledger.Ledger) error {
		if err := r.Ready(); err != nil {
			return err
		}
		g, ok := l.Get(id)
		owner = r.Handles.Owner(id)
		switch {
		case !ok:
			return fmt.Errorf("grant %q: %w", id, sharing.ErrNotFound)
		case g.Work != ledger.NoWork || g.Active != nil:
			return fmt.Errorf("grant %q is active already: %w", id, sharing.ErrConflict)
		case g.Standalone:
			return fmt.Errorf("grant %q is for a container, which its hook activates: %w", id, sharing.ErrInvalid)
		case owner == nil || owner.PID() != peer.PID || owner.StartTime() != peer.Start || !owner.Alive():
			return fmt.Errorf("grant %q was made by another process than %d: %w", id, peer.PID, sharing.ErrDenied)
		}
		c, att = g.Reservation, *r.Driver.Get()
		return l.Begin(id, ledger.Activation)
	})
	return c, owner, att, err
}

// activate does the work without the lock. No other call works on the grant meanwhile.
func (r *Activator) activate(ctx context.Context, c ledger.Reservation, owner *process.Handle, att gpudriver.Attached,
	with ActivateOptions) (activated Activated, err error) {
	group, err := r.Cgroups.Create(path.Join(r.Parent, string(c.ID)))
	if err != nil {
		return Activated{}, fmt.Errorf("make cgroup: %w", err)
	}
	own, others := r.caps.splitGPUs(c.Placement, att)
	defer func() {
		if err != nil {
			err = errors.Join(err, r.undoActivate(ctx, att, c.ID, group, append(own, others...)))
		}
	}()
	activated = Activated{ID: c.ID, Own: own, Others: others}
	if err := r.readyGroup(ctx, c, att, group, &activated, with.NoPreloadFile); err != nil {
		return Activated{}, err
	}
	if err := r.Store.UpdateLater(func(l *ledger.Ledger) error { return l.Activated(c.ID) }); err != nil {
		return Activated{}, err
	}
	if err := r.enter(ctx, c, owner, att, group); err != nil {
		return Activated{}, err
	}
	r.Watcher.Add(group)
	activated.Device = r.Instances.Device(c.ID)
	return activated, r.Store.UpdateLater(func(l *ledger.Ledger) error {
		if activated.Preload != "" && with.NoPreloadFile {
			l.SetTerms(c.ID, func(t *ledger.Terms) {
				t.LevelReason = JoinSentences([]string{preloadedByEnv, t.LevelReason})
			})
		}
		return nil
	})
}

// readyGroup does all that the process needs before it enters the group.
func (r *Activator) readyGroup(ctx context.Context, c ledger.Reservation, att gpudriver.Attached, group cgroup.Group,
	activated *Activated, byEnv bool) (err error) {
	if err := r.Failpoints.Eval("arm-after-mkdir"); err != nil {
		return err
	}
	err = r.Store.Update(func(l *ledger.Ledger) error { return l.Activate(c.ID, "", group.Dir, group.Inode) })
	if err != nil {
		return err
	}
	if err := r.Failpoints.Eval("arm-after-record"); err != nil {
		return err
	}
	if err := r.enforce(ctx, c.ID, c.Placement); err != nil {
		return err
	}
	limited, err := r.caps.applyCaps(ctx, att, c.Level, c.Placement, group.Dir, activated.Others, false)
	if err != nil {
		return err
	}
	activated.OthersCapped = len(limited) == len(activated.Others)
	b, of := r.Enforcer(ledger.Grant{Reservation: c}, &att)
	of.ByEnv = byEnv
	in, err := b.Injection(of, nil)
	if err != nil {
		return err
	}
	activated.MPS, activated.Mounts, activated.Preload = in.Env, in.Mounts, in.Library
	return r.Failpoints.Eval("arm-after-caps")
}

// preloadedByEnv is to be known of a process that does not have the loader's file.
const preloadedByEnv = "libkerf: named by LD_PRELOAD alone, since /etc/ld.so.preload is taken or cannot be made; a " +
	"program that clears its environment does not count"

// undoActivate takes back what activate did. If the process is in the cgroup all the same, the caps stay, and the grant
// stays active until the process ends. An unwanted attachment is better than memory that is in use and granted again.
func (r *Activator) undoActivate(ctx context.Context, att gpudriver.Attached, id ledger.GrantID, group cgroup.Group,
	gpus []sharing.GPU) error {
	if busy, err := group.Populated(); busy || (err != nil && !errors.Is(err, sharing.ErrNotFound)) {
		r.Watcher.Add(group)
		return fmt.Errorf("cgroup %q stays until its process ends: %w", group.Dir, errors.Join(errKept, err))
	}
	// The activate's own time may be what ran out.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), CapDeadline)
	defer cancel()
	var errs []error
	if att.Caps != nil {
		errs = append(errs, att.Caps.Clear(ctx, group.Dir, r.caps.limitable(gpus)))
	}
	errs = append(errs, group.Remove())
	return errors.Join(append(errs, r.Store.UpdateLater(func(l *ledger.Ledger) error {
		if g, ok := l.Get(id); ok && g.Active != nil {
			return l.EndAttachment(id)
		}
		return nil
	}))...)
}
