// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

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
	// Mounts are what the process mounts in a mount namespace of its own before it goes on, in that order; without
	// them nothing refuses it memory. Preload is the library that is then loaded into it and its children.
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
// Only the process that claimed may arm. A process that can have taken GPU memory already is rejected: sharing.ErrConflict.
// On any error nothing stays: the process is where it came from, and cgroup, cap and claim are gone.
//
// A crash may come anywhere. Until the process is moved, the cgroup is empty, and the next start removes it. Until the
// process was checked, it stands still, and the next start returns it. After that, the next start finds the lease.
//
// The cap is set before the move, so that a slow or unwilling driver holds up nobody who stands still.
func (r *Runtime) Arm(ctx context.Context, peer Peer, id ledger.ClaimID) (Armed, error) {
	return r.ArmWith(ctx, peer, id, ArmOptions{})
}

// ArmWith is Arm with options.
func (r *Runtime) ArmWith(ctx context.Context, peer Peer, id ledger.ClaimID, with ArmOptions) (Armed, error) {
	start := time.Now()
	claim, owner, att, err := r.beginArm(peer, id)
	if err != nil {
		return Armed{}, err
	}
	// The caller may go away at any moment; what was begun is finished or undone all the same.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), capDeadline)
	defer cancel()
	armed, err := r.arm(ctx, claim, owner, att, with)
	r.mu.Lock()
	r.ledger.Done(id)
	undone := err != nil && !errors.Is(err, errKept)
	if undone {
		r.ledger.Fail(id)
		err = errors.Join(err, r.drop(id))
		r.forget(ledger.Grant{Claim: claim}) // its lease may have ended already
	} else {
		r.held[id].letGo()
	}
	g, _ := r.ledger.Get(id)
	r.mu.Unlock()
	if undone {
		r.backends(nil).Clean(ctx)
		err = errors.Join(err, r.store.Save())
	}
	r.opt.Observer.Armed(time.Since(start), err)
	r.notify.Audit.Claim(audit.Arm, claim, claim.Backend, "", err)
	r.changed.announce()
	if err != nil {
		r.log.Error("arm undone", "claim", id, "pid", peer.PID, "error", err.Error())
		return Armed{}, fmt.Errorf("arm %q: %w", id, err)
	}
	r.log.Info("lease taken", "claim", id, "pid", peer.PID, "cgroup", g.Newest().Cgroup, "took", time.Since(start).String())
	return armed, nil
}

// beginArm checks that the peer may arm the claim, and begins.
func (r *Runtime) beginArm(peer Peer, id ledger.ClaimID) (ledger.Claim, *process.Handle, gpudriver.Attached, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fail := func(err error) (ledger.Claim, *process.Handle, gpudriver.Attached, error) {
		return ledger.Claim{}, nil, gpudriver.Attached{}, err
	}
	if err := r.ready(); err != nil {
		return fail(err)
	}
	g, ok := r.ledger.Get(id)
	h := r.held[id]
	switch {
	case !ok || h == nil:
		return fail(fmt.Errorf("claim %q: %w", id, sharing.ErrNotFound))
	case g.Work != ledger.NoWork || g.Lease != nil:
		return fail(fmt.Errorf("claim %q is armed already: %w", id, sharing.ErrConflict))
	case g.Claim.Standalone:
		return fail(fmt.Errorf("claim %q is for a container, which its hook arms: %w", id, sharing.ErrInvalid))
	case h.owner == nil || h.owner.PID() != peer.PID || h.owner.StartTime() != peer.Start || !h.owner.Alive():
		return fail(fmt.Errorf("claim %q was made by another process than %d: %w", id, peer.PID, sharing.ErrDenied))
	}
	return g.Claim, h.owner, *r.driver.Get(), r.ledger.Begin(id, ledger.Activation)
}

// arm does the work without the lock; nobody else works on the grant meanwhile.
func (r *Runtime) arm(ctx context.Context, c ledger.Claim, owner *process.Handle, att gpudriver.Attached, with ArmOptions) (armed Armed, err error) {
	group, err := r.opt.Cgroups.Create(path.Join(r.opt.Parent, string(c.ID)))
	if err != nil {
		return Armed{}, fmt.Errorf("make cgroup: %w", err)
	}
	own, others := r.splitGPUs(c.Placement, att)
	defer func() {
		if err != nil {
			err = errors.Join(err, r.undoArm(ctx, att, c.ID, group, append(own, others...)))
		}
	}()
	armed = Armed{ID: c.ID, Own: own, Others: others}
	if err := r.readyGroup(ctx, c, att, group, &armed, with.NoPreloadFile); err != nil {
		return Armed{}, err
	}
	r.mu.Lock()
	err = r.ledger.Arm(c.ID)
	r.mu.Unlock()
	if err != nil {
		return Armed{}, err
	}
	if err := r.enter(ctx, c, owner, att, group); err != nil {
		return Armed{}, err
	}
	r.watcher.Add(group)
	r.mu.Lock()
	defer r.mu.Unlock()
	armed.Device = r.instances.Device(c.ID)
	if armed.Preload != "" && with.NoPreloadFile {
		r.ledger.SetTerms(c.ID, func(t *ledger.Terms) { t.LevelReason = joinSentences([]string{preloadedByEnv, t.LevelReason}) })
	}
	return armed, nil
}

// readyGroup does all that the process needs before it enters the group.
func (r *Runtime) readyGroup(ctx context.Context, c ledger.Claim, att gpudriver.Attached, group cgroup.Group, armed *Armed, byEnv bool) (err error) {
	if err := r.opt.Failpoints.Eval("arm-after-mkdir"); err != nil {
		return err
	}
	r.mu.Lock()
	err = r.ledger.Activate(c.ID, "", group.Dir, group.Inode)
	r.mu.Unlock()
	if err != nil {
		return err
	}
	if err := r.store.Save(); err != nil {
		return err
	}
	if err := r.opt.Failpoints.Eval("arm-after-record"); err != nil {
		return err
	}
	if err := r.enforce(ctx, c.ID, c.Placement); err != nil {
		return err
	}
	limited, err := r.applyCaps(ctx, att, c.Level, c.Placement, group.Dir, armed.Others, false)
	if err != nil {
		return err
	}
	armed.OthersCapped = len(limited) == len(armed.Others)
	b, of := r.enforcer(ledger.Grant{Claim: c}, &att)
	of.ByEnv = byEnv
	in, err := b.Injection(of, nil)
	if err != nil {
		return err
	}
	armed.MPS, armed.Mounts, armed.Preload = in.Env, in.Mounts, in.Library
	return r.opt.Failpoints.Eval("arm-after-caps")
}

// preloadedByEnv is to be known of a process that does not have the loader's file.
const preloadedByEnv = "libkerf: named by LD_PRELOAD alone, since /etc/ld.so.preload is taken or cannot be made; a program that clears its environment does not count"

// splitGPUs sorts the inventory into the GPUs of the placement, in its order, and the others. A shared MIG instance is
// reached by the device of its GPU, and kept from others by its capability.
func (r *Runtime) splitGPUs(p sharing.Placement, att gpudriver.Attached) (own, others []sharing.GPU) {
	byID := make(map[sharing.GPUID]sharing.GPU, len(att.GPUs))
	for _, g := range att.GPUs {
		byID[g.UUID] = g
	}
	mine := map[sharing.GPUID]bool{}
	for _, f := range p {
		own = append(own, byID[f.GPU])
		mine[f.GPU.Device()] = true
	}
	for _, g := range att.GPUs {
		if !mine[g.UUID.Device()] && !g.UUID.IsPart() {
			others = append(others, g)
		}
	}
	return own, others
}

// applyCaps limits the cgroup on its own GPUs, and to the least on the others so that nothing depends on
// what the process does about its view of /dev. It returns the other GPUs that are so limited.
func (r *Runtime) applyCaps(ctx context.Context, att gpudriver.Attached, level sharing.Level, p sharing.Placement, dir string, others []sharing.GPU, runs bool) ([]sharing.GPUID, error) {
	own, rest := r.cappable(p), r.limitable(others)
	if level == sharing.LevelDriver && len(own) != len(p) {
		return nil, fmt.Errorf("the driver can no longer limit memory on every GPU of the claim: %w", sharing.ErrUnavailable)
	}
	if att.Caps == nil || len(own)+len(rest) == 0 {
		return nil, nil
	}
	leave, err := r.capGate.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	put := att.Caps.Apply
	if runs {
		put = att.Caps.Renew
	}
	return rest, put(ctx, dir, own, rest)
}

// cappable are the fragments that take a limit now: not whole, on a GPU that is there and can limit.
func (r *Runtime) cappable(p sharing.Placement) sharing.Placement {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out sharing.Placement
	for _, f := range p {
		if !f.Whole && r.canLimit(f.GPU) {
			out = append(out, f)
		}
	}
	return out
}

// limitable are the GPUs on which a limit can be set now. One that is lost or does not answer takes none
// until it is back: the verification then sets it. One GPU that hangs must not keep all others from use.
func (r *Runtime) limitable(gpus []sharing.GPU) []sharing.GPUID {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ids []sharing.GPUID
	for _, g := range gpus {
		if r.canLimit(g.UUID) {
			ids = append(ids, g.UUID)
		}
	}
	return ids
}

func (r *Runtime) healthOf(id sharing.GPUID) sharing.Health {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, _ := r.ledger.GPU(id)
	return v.GPU.Health
}

// canLimit needs the lock.
func (r *Runtime) canLimit(id sharing.GPUID) bool {
	if r.driver.Get() == nil || !r.driver.Get().Levels[id].Limits() {
		return false
	}
	v, ok := r.ledger.GPU(id)
	return ok && !v.GPU.MIG && v.GPU.Health != sharing.HealthLost && v.GPU.Health != sharing.HealthSuspect
}

// undoArm takes back what arm did. If the process is in the cgroup all the same, the caps stay, and the claim stays
// leased until the process ends: better an unwanted lease than memory that is in use and granted again.
func (r *Runtime) undoArm(ctx context.Context, att gpudriver.Attached, id ledger.ClaimID, group cgroup.Group, gpus []sharing.GPU) error {
	if busy, err := group.Populated(); busy || (err != nil && !errors.Is(err, sharing.ErrNotFound)) {
		r.watcher.Add(group)
		return fmt.Errorf("cgroup %q stays until its process ends: %w", group.Dir, errors.Join(errKept, err))
	}
	// The arm's own time may be what ran out.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), capDeadline)
	defer cancel()
	var errs []error
	if att.Caps != nil {
		errs = append(errs, att.Caps.Clear(ctx, group.Dir, r.limitable(gpus)))
	}
	errs = append(errs, group.Remove())
	r.mu.Lock()
	defer r.mu.Unlock()
	if g, ok := r.ledger.Get(id); ok && g.Lease != nil {
		errs = append(errs, r.ledger.EndLease(id))
	}
	return errors.Join(errs...)
}
