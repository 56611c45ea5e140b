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

// errKept marks an arm that went wrong with the process already in its cgroup: the lease stays.
var errKept = errors.New("lease kept")

// Armed is what a process needs to know once it is in its cgroup.
type Armed struct {
	ID ledger.ClaimID
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

// ArmOptions are what a process says of itself when it arms.
type ArmOptions struct {
	// NoPreloadFile says that the process cannot mount over /etc/ld.so.preload, or would lose what stands in it: the
	// library is then named by the environment.
	NoPreloadFile bool
}

// Arm sets the claim's cap on a new cgroup, reads it back, and moves the calling process into it, see package entry.
// Only the process that claimed may call it. A process that may already have GPU memory is rejected:
// sharing.ErrConflict. On any error the process is back where it came from, and cgroup, cap and claim are removed.
//
// The agent may crash at any point. Until the process is moved, the cgroup is empty, and the next start removes it.
// Until the process is checked, it is frozen, and the next start returns it. After that, the next start finds the
// lease.
//
// Arm sets the cap before the move, so that a slow driver delays no frozen process.
func (r *Activator) Arm(ctx context.Context, peer Peer, id ledger.ClaimID) (Armed, error) {
	return r.ArmWith(ctx, peer, id, ArmOptions{})
}

// ArmWith is Arm with options.
func (r *Activator) ArmWith(ctx context.Context, peer Peer, id ledger.ClaimID, with ArmOptions) (Armed, error) {
	start := time.Now()
	claim, owner, att, err := r.beginArm(peer, id)
	if err != nil {
		return Armed{}, err
	}
	// The caller may go away at any moment; what was begun is finished or undone all the same.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), CapDeadline)
	defer cancel()
	armed, err := r.arm(ctx, claim, owner, att, with)
	g, undone, err := r.endArm(claim, err)
	if undone {
		r.Backends(nil).Clean(ctx)
		err = errors.Join(err, r.Store.Save())
	}
	r.Observer.Armed(time.Since(start), err)
	r.Notify.Audit.Claim(audit.Activate, claim, claim.Backend, "", err)
	r.Announce()
	if err != nil {
		r.Log.Error("failed to activate grant", "grant", id, "pid", peer.PID, "error", err.Error())
		return Armed{}, fmt.Errorf("arm %q: %w", id, err)
	}
	r.Log.Info("activated grant", "grant", id, "pid", peer.PID, "cgroup", g.Newest().Cgroup, "took",
		time.Since(start).String())
	return armed, nil
}

// endArm notes how the activation ended. Unless the lease stays, an error ends the claim.
func (r *Activator) endArm(claim ledger.Claim, armErr error) (g ledger.Grant, undone bool, err error) {
	undone = armErr != nil && !errors.Is(armErr, errKept)
	err = r.Store.Note(func(l *ledger.Ledger) error {
		l.Done(claim.ID)
		if !undone {
			r.Handles.LetGo(claim.ID)
			g, _ = l.Get(claim.ID)
			return nil
		}
		l.Fail(claim.ID)
		err := r.Drop(l, claim.ID)
		r.Forget(l, ledger.Grant{Claim: claim}) // its lease may have ended already
		return err
	})
	return g, undone, errors.Join(armErr, err)
}

// beginArm checks that the peer may arm the claim, and begins.
func (r *Activator) beginArm(peer Peer, id ledger.ClaimID) (c ledger.Claim, owner *process.Handle,
	att gpudriver.Attached, err error) {
	err = r.Store.Note(func(l *ledger.Ledger) error {
		if err := r.Ready(); err != nil {
			return err
		}
		g, ok := l.Get(id)
		owner = r.Handles.Owner(id)
		switch {
		case !ok:
			return fmt.Errorf("claim %q: %w", id, sharing.ErrNotFound)
		case g.Work != ledger.NoWork || g.Lease != nil:
			return fmt.Errorf("claim %q is armed already: %w", id, sharing.ErrConflict)
		case g.Claim.Standalone:
			return fmt.Errorf("claim %q is for a container, which its hook arms: %w", id, sharing.ErrInvalid)
		case owner == nil || owner.PID() != peer.PID || owner.StartTime() != peer.Start || !owner.Alive():
			return fmt.Errorf("claim %q was made by another process than %d: %w", id, peer.PID, sharing.ErrDenied)
		}
		c, att = g.Claim, *r.Driver.Get()
		return l.Begin(id, ledger.Activation)
	})
	return c, owner, att, err
}

// arm does the work without the lock. No other call works on the grant meanwhile.
func (r *Activator) arm(ctx context.Context, c ledger.Claim, owner *process.Handle, att gpudriver.Attached,
	with ArmOptions) (armed Armed, err error) {
	group, err := r.Cgroups.Create(path.Join(r.Parent, string(c.ID)))
	if err != nil {
		return Armed{}, fmt.Errorf("make cgroup: %w", err)
	}
	own, others := r.caps.splitGPUs(c.Placement, att)
	defer func() {
		if err != nil {
			err = errors.Join(err, r.undoArm(ctx, att, c.ID, group, append(own, others...)))
		}
	}()
	armed = Armed{ID: c.ID, Own: own, Others: others}
	if err := r.readyGroup(ctx, c, att, group, &armed, with.NoPreloadFile); err != nil {
		return Armed{}, err
	}
	if err := r.Store.Note(func(l *ledger.Ledger) error { return l.Arm(c.ID) }); err != nil {
		return Armed{}, err
	}
	if err := r.enter(ctx, c, owner, att, group); err != nil {
		return Armed{}, err
	}
	r.Watcher.Add(group)
	armed.Device = r.Instances.Device(c.ID)
	return armed, r.Store.Note(func(l *ledger.Ledger) error {
		if armed.Preload != "" && with.NoPreloadFile {
			l.SetTerms(c.ID, func(t *ledger.Terms) {
				t.LevelReason = JoinSentences([]string{preloadedByEnv, t.LevelReason})
			})
		}
		return nil
	})
}

// readyGroup does all that the process needs before it enters the group.
func (r *Activator) readyGroup(ctx context.Context, c ledger.Claim, att gpudriver.Attached, group cgroup.Group,
	armed *Armed, byEnv bool) (err error) {
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
	limited, err := r.caps.applyCaps(ctx, att, c.Level, c.Placement, group.Dir, armed.Others, false)
	if err != nil {
		return err
	}
	armed.OthersCapped = len(limited) == len(armed.Others)
	b, of := r.Enforcer(ledger.Grant{Claim: c}, &att)
	of.ByEnv = byEnv
	in, err := b.Injection(of, nil)
	if err != nil {
		return err
	}
	armed.MPS, armed.Mounts, armed.Preload = in.Env, in.Mounts, in.Library
	return r.Failpoints.Eval("arm-after-caps")
}

// preloadedByEnv is to be known of a process that does not have the loader's file.
const preloadedByEnv = "libkerf: named by LD_PRELOAD alone, since /etc/ld.so.preload is taken or cannot be made; a " +
	"program that clears its environment does not count"

// undoArm takes back what arm did. If the process is in the cgroup all the same, the caps stay, and the grant stays
// active until the process ends. An unwanted attachment is better than memory that is in use and granted again.
func (r *Activator) undoArm(ctx context.Context, att gpudriver.Attached, id ledger.ClaimID, group cgroup.Group,
	gpus []sharing.GPU) error {
	if busy, err := group.Populated(); busy || (err != nil && !errors.Is(err, sharing.ErrNotFound)) {
		r.Watcher.Add(group)
		return fmt.Errorf("cgroup %q stays until its process ends: %w", group.Dir, errors.Join(errKept, err))
	}
	// The arm's own time may be what ran out.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), CapDeadline)
	defer cancel()
	var errs []error
	if att.Caps != nil {
		errs = append(errs, att.Caps.Clear(ctx, group.Dir, r.caps.limitable(gpus)))
	}
	errs = append(errs, group.Remove())
	return errors.Join(append(errs, r.Store.Note(func(l *ledger.Ledger) error {
		if g, ok := l.Get(id); ok && g.Lease != nil {
			return l.EndLease(id)
		}
		return nil
	}))...)
}
