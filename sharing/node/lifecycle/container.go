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
	"time"

	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/audit"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/gpudriver"
	"github.com/kerf-gpu/kerf/sharing/node/store"
)

// ActivateContainer puts the cap on a container's cgroup, reads it back and adds the attachment. The container's
// program does not run yet: its OCI runtime waits for kerf-hook, which waits for this answer. It fails the start unless
// the answer is nil. Another call, as by each hook of one container, changes nothing.
//
// An error that wraps ErrUnavailable may pass; the hook asks again for a while. Any other is final. ErrNotFound is a
// container that was created without a grant, and ErrInvalid an amount that is not the grant's. ErrStale is a process
// that is not the container's, and ErrConflict a grant in use by another.
func (r *Activator) ActivateContainer(ctx context.Context, call sharing.HookCall) error {
	start := time.Now()
	proc, group, err := r.containerProcess(call)
	if err != nil {
		return fmt.Errorf("container %q: %w", call.ContainerID, err)
	}
	defer proc.Close()
	if err := r.endFormer(ctx, call); err != nil {
		return fmt.Errorf("container %q: %w", call.ContainerID, err)
	}
	var g ledger.Grant
	var att gpudriver.Attached
	var done bool
	err = r.Store.UpdateLater(func(l *ledger.Ledger) (err error) {
		g, att, done, err = r.beginContainer(l, call, group)
		return err
	})
	if err != nil || done {
		if err != nil {
			err = fmt.Errorf("container %q: %w", call.ContainerID, err)
		}
		return err
	}
	// The hook may go away at any moment; what was begun is finished or undone all the same.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), CapDeadline)
	defer cancel()
	err = r.activateContainer(ctx, g, att, group, proc)
	_ = r.Store.UpdateLater(func(l *ledger.Ledger) error {
		l.Done(g.ID)
		l.Fail(g.ID)
		if err == nil {
			// from here on the cgroup tells; a grant that is not activated yet ends with its owner
			r.Handles.LetGo(g.ID)
		}
		return nil
	})
	r.Observer.Activated(time.Since(start), err)
	r.Notify.Audit.Grant(audit.Activate, g.Reservation, g.Backend, "container "+call.ContainerID, err)
	r.Announce()
	if err != nil {
		r.Log.Error("failed to activate grant of container", "grant", g.ID, "container", call.ContainerID,
			"error", err.Error())
		return fmt.Errorf("container %q: activate %q: %w", call.ContainerID, g.ID, errors.Join(err, r.Store.Save()))
	}
	r.Log.Info("activated grant", "grant", g.ID, "pod", g.Owner.Namespace+"/"+g.Owner.PodName,
		"container", g.Newest().Container, "container_id", call.ContainerID, "cgroup", group.Dir, "took",
		time.Since(start).String(), "inject_took", g.Newest().InjectTook.String())
	return nil
}

// containerProcess makes sure that the process is the container's. It is in a cgroup that bears the container's id,
// where the OCI runtime put it and which it cannot leave.
func (r *Activator) containerProcess(call sharing.HookCall) (*process.Handle, cgroup.Group, error) {
	if len(call.ContainerID) < minContainerID {
		return nil, cgroup.Group{}, fmt.Errorf(
			"the id is shorter than %d characters, so its cgroup cannot be identified: %w", minContainerID,
			sharing.ErrInvalid)
	}
	proc, err := process.Open(call.PID)
	if err != nil {
		return nil, cgroup.Group{}, fmt.Errorf("process %d: %w", call.PID, err)
	}
	dir, err := r.Cgroups.OfProcess(call.PID)
	var group cgroup.Group
	if err == nil && !strings.Contains(path.Base(dir), call.ContainerID) {
		err = fmt.Errorf("process %d is in cgroup %q, which is not the container's: %w", call.PID, dir,
			sharing.ErrStale)
	}
	if err == nil {
		group, err = r.Cgroups.Open(dir, 0)
	}
	if err == nil && !proc.Alive() {
		err = fmt.Errorf("process %d ended: %w", call.PID, sharing.ErrStale)
	}
	if err != nil {
		proc.Close()
		return nil, cgroup.Group{}, err
	}
	return proc, group, nil
}

// minContainerID keeps an id from being found in any cgroup's name.
const minContainerID = 8

// endFormer ends the attachment of the previous instance if it has ended and the reconciler has not seen that yet.
func (r *Activator) endFormer(ctx context.Context, call sharing.HookCall) error {
	var former ledger.Grant
	end := false
	err := r.Store.UpdateLater(func(l *ledger.Ledger) (err error) {
		former, err = r.grantOfCall(l, call)
		if err == nil && former.Active != nil && former.Active.ContainerID != call.ContainerID &&
			former.Work == ledger.NoWork {
			over, _ := empty(r.GroupOf(*former.Active)) // on doubt it is not over
			end = over && l.Begin(former.ID, ledger.Release) == nil
		}
		return err
	})
	if err != nil || !end {
		return err
	}
	if _, err := r.releaser.end(ctx, former.ID); err != nil {
		return fmt.Errorf("the instance before it (%s) has not ended: %w", former.Active.ContainerID,
			errors.Join(sharing.ErrUnavailable, err))
	}
	return nil
}

// grantOfCall finds the grant that the container was injected with, or that its hook names.
func (r *Activator) grantOfCall(l store.Reader, call sharing.HookCall) (ledger.Grant, error) {
	id, ok := l.ByContainerID(call.ContainerID)
	g, _ := l.Get(id)
	if !ok && call.Grant != "" {
		// A pod's grant is only ever used by the containers that were injected with it.
		g, ok = l.Get(ledger.GrantID(call.Grant))
		ok = ok && g.Standalone && g.Active == nil && (g.Next == nil || g.Next.State != ledger.Activating)
	}
	switch {
	case ok:
		return g, nil
	case call.Grant != "":
		return g, fmt.Errorf("grant %q does not exist, or another container has it: %w", call.Grant,
			sharing.ErrNotFound)
	case !r.Recovery.Get().Listed:
		return g, fmt.Errorf("the agent has not yet heard from the container runtime: %w", sharing.ErrUnavailable)
	}
	return g, errMadeWithout()
}

func errMadeWithout() error {
	return fmt.Errorf("it was made without its grant, because the agent's NRI plugin was away or too slow at that "+
		"moment; it has no GPU and must be made again: %w", sharing.ErrNotFound)
}

// errCreated is why a container cannot be activated as it was created, or nil.
func errCreated(next *ledger.Attachment) error {
	switch {
	case next == nil:
	case next.State == ledger.Rejected:
		return errMadeWithout()
	case next.State == ledger.Assigned:
		return fmt.Errorf("the container runtime has not yet said that it made the container with its grant: %w",
			sharing.ErrUnavailable)
	}
	return nil
}

// beginContainer checks that the container may activate its grant, and begins. done is true when it is activated
// already.
func (r *Activator) beginContainer(l *ledger.Ledger, call sharing.HookCall, group cgroup.Group) (g ledger.Grant,
	att gpudriver.Attached, done bool, err error) {
	if err := Unready(r.Unsettled()); err != nil {
		return g, att, false, err
	}
	g, err = r.grantOfCall(l, call)
	if err != nil {
		return g, att, false, err
	}
	id, asks, newest := g.ID, g.Requests, g.Newest()
	if newest.ContainerID != "" {
		asks = newest.Requests
	}
	switch {
	case call.Amount != "" && !slices.Contains(sharing.FormatResourceRequests(asks), call.Amount):
		err = fmt.Errorf("its hook was given the amount %q and its grant %q has %v: %w", call.Amount, id,
			sharing.FormatResourceRequests(asks), sharing.ErrInvalid)
	case SharedCapBusy(l, id):
		err = fmt.Errorf("grant %q is %w", id, ErrBusy)
	case g.Active == nil:
		err = errCreated(g.Next)
	case g.Active.ContainerID != call.ContainerID || g.Active.Cgroup != group.Dir:
		err = fmt.Errorf("grant %q is still in use by container %s (cgroup %s): %w", id, g.Active.ContainerID,
			g.Active.Cgroup, sharing.ErrUnavailable)
	case g.Active.Inode != group.Inode:
		err = fmt.Errorf("grant %q is in use by an earlier cgroup of that name: %w", id, sharing.ErrUnavailable)
	case g.Active.Verified && g.Active.Unverified == "":
		return g, *r.Driver.Get(), true, nil
	}
	if why := r.InstanceLost(l, g.Reservation); err == nil && why != "" {
		err = fmt.Errorf("grant %q: %s: %w", id, why, sharing.ErrUnavailable)
	}
	if err == nil {
		err = beginActivation(l, g, call.ContainerID, group)
	}
	if err != nil {
		return g, att, false, err
	}
	g, _ = l.Get(id)
	return g, *r.Driver.Get(), false, nil
}

// beginActivation notes that a container's caps are being set.
func beginActivation(l *ledger.Ledger, g ledger.Grant, containerID string, group cgroup.Group) error {
	id := g.ID
	if g.Active == nil && g.Newest().ContainerID != containerID { // a container that names its grant, not a pod's
		next := ledger.Attachment{State: ledger.Injected, ContainerID: containerID, Requests: g.Requests}
		if err := l.Assign(id, next); err != nil {
			return err
		}
	}
	if err := l.Begin(id, ledger.Activation); err != nil {
		return err
	}
	if g.Active != nil {
		return nil
	}
	if err := l.Activate(id, containerID, group.Dir, group.Inode); err != nil {
		l.Done(id)
		return err
	}
	return nil
}

// activateContainer does the work without the lock; h is busy. It freezes nothing, unlike the activation of a process.
// The OCI runtime waits for the hook in the process that is to become the container's. Nothing of the tenant has run
// yet, so nothing can use GPU memory. A crash at any point leaves an attachment in the checkpoint with the hook still
// waiting. The next start restores its caps.
func (r *Activator) activateContainer(ctx context.Context, g ledger.Grant, att gpudriver.Attached, group cgroup.Group,
	proc *process.Handle) (err error) {
	if err := r.Store.Save(); err != nil {
		return err
	}
	if err := r.Failpoints.Eval("hook-after-record"); err != nil {
		return err
	}
	id, u, inForce := g.ID, g.Newest(), g.Granted()
	switch {
	case len(u.Part) > 0:
		inForce = u.Part
	case g.Active != nil:
		inForce = g.Caps()
	}
	own, others := r.caps.splitGPUs(g.Placement, att)
	defer func() {
		if err != nil && g.Active == nil {
			err = errors.Join(err, r.undoContainer(ctx, att, g.ID, group, append(own, others...)))
		}
	}()
	// A container has the pipe directory of MPS since it was made. Without a daemon behind it nothing would limit it.
	if err := r.enforce(ctx, g.ID, inForce); err != nil {
		return fmt.Errorf("cap not set: %w", err)
	}
	limits := inForce
	if g.SharedCap != nil {
		limits = nil // the driver's limit is one cgroup's
	}
	limited, err := r.caps.applyCaps(ctx, att, g.Level, limits, group.Dir, others, g.Active != nil)
	if err != nil {
		return fmt.Errorf("cap not set: %w", err)
	}
	if err := r.Failpoints.Eval("hook-after-caps"); err != nil {
		return err
	}
	if g.Active == nil {
		err = r.Store.UpdateLater(func(l *ledger.Ledger) error { return l.Activated(id) })
	}
	if err != nil {
		return err
	}
	if dir, err := r.Cgroups.OfProcess(proc.PID()); err != nil || dir != group.Dir || !proc.Alive() {
		return fmt.Errorf("process %d left cgroup %q while it was being activated: %w", proc.PID(), group.Dir,
			errors.Join(sharing.ErrStale, err))
	}
	r.Watcher.Add(group)
	_ = r.Store.UpdateLater(func(l *ledger.Ledger) error {
		l.SetChecks(id, u.ContainerID, func(c *ledger.Checks) {
			c.Verified, c.Limited, c.Unverified = true, limited,
				""
		})
		return nil
	})
	return r.Failpoints.Eval("hook-after-arm")
}

// undoContainer takes back what activateContainer did. The program does not run, so nothing is charged yet, and
// the start fails.
func (r *Activator) undoContainer(ctx context.Context, att gpudriver.Attached, id ledger.GrantID, group cgroup.Group,
	gpus []sharing.GPU) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), CapDeadline)
	defer cancel()
	var errs []error
	if att.Caps != nil {
		errs = append(errs, att.Caps.Clear(ctx, group.Dir, r.caps.limitable(gpus)))
	}
	r.Watcher.Drop(group)
	return errors.Join(append(errs, r.Store.UpdateLater(func(l *ledger.Ledger) error {
		g, ok := l.Get(id)
		if !ok || g.Active == nil {
			return nil
		}
		err := l.EndAttachment(id)
		if !g.Owner.Pod() {
			r.Forget(l, g)
			return err
		}
		again := *g.Active // its hook may ask again
		again.State, again.Checks = ledger.Injected, ledger.Checks{InjectTook: g.Active.InjectTook}
		return errors.Join(err, l.Assign(id, again))
	}))...)
}
