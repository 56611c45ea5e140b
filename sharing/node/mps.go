// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend"
	"github.com/kerf-gpu/kerf/sharing/backend/choice"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// MPS runs the control daemons of leases that MPS holds. It may be called from several goroutines.
type MPS interface {
	// Prepare makes a lease one of its daemon's users, and what its containers are made with, before the daemon has to
	// serve: it returns soon. One that is a user keeps its terms. On error it is none.
	Prepare(ctx context.Context, l MPSLease) error
	// Enter makes a lease one of its daemon's users, with these terms, once that serves. On error it is what it was.
	Enter(ctx context.Context, l MPSLease) error
	// Client is what the processes of a lease need to be its daemon's clients. It returns at once, whether there is a
	// daemon or not.
	Client(l MPSLease) (MPSClient, error)
	// Leave ends that. It is harmless for one that is none.
	Leave(ctx context.Context, l MPSLease) error
	// Fault says why the lease's daemon does not serve now, and is empty while it does. It returns at once.
	Fault(l MPSLease) string
}

// MPSClient is what makes a process a daemon's client.
type MPSClient struct {
	Env map[string]string
	// Mounts are for a container, which has a /dev/shm of its own otherwise.
	Mounts []sharing.Mount
}

// MPSLease is what a daemon has to know of a lease: who shares it, and what each process of the lease may have.
type MPSLease struct {
	ID     string
	GPU    sharing.GPUID
	Domain string
	// Contained is true for a container's: its daemon is of containers alone.
	Contained bool
	Memory    sharing.Bytes
	// PID is the process that arms, which may have mounts of its own; 0 for any other call.
	PID int
	// Percent is 0 where there is no share of the compute to hold it to.
	Percent sharing.Percent
}

// domainOf names who trusts an owner so far that they may share a daemon; it needs the lock. Containers and processes
// never do: a daemon has one /dev/shm.
func (r *Runtime) domainOf(o ledger.Owner) string {
	switch {
	case r.pool.MPSSharing == config.MPSSharingPool && o.Pod():
		return "pool/pods"
	case r.pool.MPSSharing == config.MPSSharingPool:
		return "pool"
	case o.Pod():
		return "namespace/" + o.Namespace
	}
	return userDomain + strconv.FormatUint(uint64(o.UID), 10)
}

const userDomain = "uid/"

// UserOfDomain is the user whose processes alone are in a domain of MPS; false for a domain of several users, and of
// containers.
func UserOfDomain(domain string) (uint32, bool) {
	text, ok := strings.CutPrefix(domain, userDomain)
	uid, err := strconv.ParseUint(text, 10, 32)
	return uint32(uid), ok && err == nil
}

// mpsLease is what the daemon of a grant is to know; ok is false where MPS does not hold it.
func mpsLease(c ledger.Claim, h *holding) (l MPSLease, ok bool) {
	if h == nil || h.backend != config.BackendMPS || len(c.Placement) != 1 {
		return MPSLease{}, false
	}
	f := c.Placement[0]
	return MPSLease{ID: string(c.ID), GPU: f.GPU, Domain: h.domain, Contained: c.Owner.Pod(), Memory: f.Memory, Percent: f.Percent}, true
}

// of is the lease with what is in force for its user where that is less than the grant.
func (l MPSLease) of(inForce sharing.Placement) MPSLease {
	if len(inForce) == 1 {
		l.Memory, l.Percent = inForce[0].Memory, inForce[0].Percent
	}
	return l
}

// MPSLeases are the leases that MPS holds: what its daemons are needed for.
func (r *Runtime) MPSLeases() []MPSLease {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []MPSLease
	for _, g := range r.ledger.Grants() {
		// The containers of a pod's claim may have been made already, and not be armed yet.
		if l, ok := mpsLease(g.Claim, r.held[g.Claim.ID]); ok && (g.Lease != nil || l.Contained) {
			out = append(out, l)
		}
	}
	return out
}

// enterMPS gives a claim that MPS holds its daemon, for what is in force of it, and returns the environment of its
// processes.
func (r *Runtime) enterMPS(ctx context.Context, c ledger.Claim, h *holding, inForce sharing.Placement) (map[string]string, error) {
	l, ok := mpsLease(c, h)
	if !ok {
		return nil, nil
	}
	l = l.of(inForce)
	if h.owner != nil && !l.Contained {
		l.PID = h.owner.PID()
	}
	if r.opt.MPS == nil {
		return nil, errNoMPS()
	}
	if err := r.opt.MPS.Enter(ctx, l); err != nil {
		return nil, err
	}
	client, err := r.opt.MPS.Client(l)
	return client.Env, err
}

func errNoMPS() error { return fmt.Errorf("this agent does not run MPS: %w", sharing.ErrUnavailable) }

// prepareMPS makes what the container of a claim that MPS holds is made with.
func (r *Runtime) prepareMPS(ctx context.Context, id ledger.ClaimID) error {
	r.mu.Lock()
	g, _ := r.ledger.Get(id)
	l, ok := mpsLease(g.Claim, r.held[id])
	r.mu.Unlock()
	switch {
	case !ok || !l.Contained:
		return nil
	case r.opt.MPS == nil:
		return errNoMPS()
	}
	return r.opt.MPS.Prepare(ctx, l)
}

// addMPS adds to what a container gets what makes it a client of MPS, where that holds it; it needs the lock.
func (r *Runtime) addMPS(in *sharing.Injection, c ledger.Claim, h *holding) error {
	l, ok := mpsLease(c, h)
	switch {
	case !ok || !l.Contained:
		return nil
	case r.opt.MPS == nil:
		return errNoMPS()
	}
	client, err := r.opt.MPS.Client(l.of(in.Placement))
	if err != nil {
		return err
	}
	maps.Copy(in.Env, client.Env)
	in.Mounts = append(in.Mounts, client.Mounts...)
	return nil
}

// spendMPS leaves it to the next reconcile that a claim of a pod leaves its daemon. It needs the lock.
func (r *Runtime) spendMPS(c ledger.Claim, h *holding) {
	if c.Owner.Pod() && h.backend == config.BackendMPS {
		r.leaving = append(r.leaving, leaving{c, h})
	}
}

// leaving is a claim that has ended and whose daemon does not know of it yet.
type leaving struct {
	claim ledger.Claim
	held  *holding
}

// leaveAllMPS does what spendMPS left.
func (r *Runtime) leaveAllMPS(ctx context.Context) {
	r.mu.Lock()
	all := r.leaving
	r.leaving = nil
	r.mu.Unlock()
	for _, l := range all {
		r.leaveMPS(ctx, l.claim, l.held)
	}
}

// leaveMPS ends a claim's use of its daemon. A daemon that cannot be ended now is ended later by who runs it.
func (r *Runtime) leaveMPS(ctx context.Context, c ledger.Claim, h *holding) {
	l, ok := mpsLease(c, h)
	if !ok || r.opt.MPS == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), capDeadline)
	defer cancel()
	if err := r.opt.MPS.Leave(ctx, l); err != nil {
		r.log.Warn("mps daemon not left in order", "claim", c.ID, "gpu", string(l.GPU), "error", err.Error())
	}
}

// mpsFault says why the daemon of a grant does not serve; it needs the lock.
func (r *Runtime) mpsFault(c ledger.Claim) string {
	l, ok := mpsLease(c, r.held[c.ID])
	switch {
	case !ok:
		return ""
	case r.opt.MPS == nil:
		return errNoMPS().Error()
	}
	return r.opt.MPS.Fault(l)
}

// podsBut are the backends that cannot enforce a request of a pod.
func (r *Runtime) podsBut(req sharing.Request) choice.Without {
	return choice.PodsByMPS(r.opt.NoMPSForPods).OnGPUs(req.GPUs)
}

// mixes are the GPUs on which there are shares: those that MPS holds, and others. One GPU never has both. It needs the
// lock.
func (r *Runtime) mixes() (mps, others map[sharing.GPUID]bool) {
	mps, others = map[sharing.GPUID]bool{}, map[sharing.GPUID]bool{}
	for _, g := range r.ledger.Grants() {
		h := r.held[g.Claim.ID]
		for _, f := range g.Claim.Placement {
			switch {
			case f.Whole:
			case h != nil && backend.PropertiesOf(h.backend).Served:
				mps[f.GPU] = true
			default:
				others[f.GPU] = true
			}
		}
	}
	return mps, others
}
