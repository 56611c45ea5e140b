// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"maps"
	"strconv"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator"
	"github.com/kerf-gpu/kerf/sharing/caps/choice"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// MPS runs the control daemons of leases that MPS holds. It may be called from several goroutines.
type MPS interface {
	// Enter makes a lease one of its daemon's users, once that serves, and returns what its processes must have in their
	// environment. It is harmless for one that is one already. On error it is none.
	Enter(ctx context.Context, l MPSLease) (map[string]string, error)
	// Leave ends that. It is harmless for one that is none.
	Leave(ctx context.Context, l MPSLease) error
	// Fault says why the lease's daemon does not serve now, and is empty while it does. It returns at once.
	Fault(l MPSLease) string
}

// MPSLease is what a daemon has to know of a lease: who shares it, and what each process of the lease may have.
type MPSLease struct {
	ID     string
	GPU    sharing.GPUID
	Domain string
	Memory sharing.Bytes
	// Percent is 0 where there is no share of the compute to hold it to.
	Percent sharing.Percent
}

// domainOf names who trusts an owner so far that they may share a daemon; it needs the lock.
func (r *Runtime) domainOf(o ledger.Owner) string {
	switch {
	case r.pool.MPSSharing == config.MPSSharingPool:
		return "pool"
	case o.Pod():
		return "namespace/" + o.Namespace
	}
	return "uid/" + strconv.FormatUint(uint64(o.UID), 10)
}

// mpsLease is what the daemon of a grant is to know; ok is false where MPS does not hold it.
func mpsLease(c ledger.Claim, h *holding) (l MPSLease, ok bool) {
	if h == nil || h.backend != config.BackendMPS || len(c.Placement) != 1 {
		return MPSLease{}, false
	}
	f := c.Placement[0]
	return MPSLease{ID: string(c.ID), GPU: f.GPU, Domain: h.domain, Memory: f.Memory, Percent: f.Percent}, true
}

// MPSLeases are the leases that MPS holds: what its daemons are needed for.
func (r *Runtime) MPSLeases() []MPSLease {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []MPSLease
	for _, g := range r.ledger.Grants() {
		if l, ok := mpsLease(g.Claim, r.held[g.Claim.ID]); ok && g.Lease != nil {
			out = append(out, l)
		}
	}
	return out
}

// enterMPS gives a claim that MPS holds its daemon, and returns the environment of its processes.
func (r *Runtime) enterMPS(ctx context.Context, c ledger.Claim, h *holding) (map[string]string, error) {
	l, ok := mpsLease(c, h)
	if !ok {
		return nil, nil
	}
	if r.opt.MPS == nil {
		return nil, fmt.Errorf("this agent does not run MPS: %w", sharing.ErrUnavailable)
	}
	return r.opt.MPS.Enter(ctx, l)
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
	if !ok || r.opt.MPS == nil {
		return ""
	}
	return r.opt.MPS.Fault(l)
}

// noMPS says why MPS cannot hold containers: NVIDIA's own plugin gives each client the /dev/shm of its daemon beside the
// pipe directory, and a container has one of its own. A container that was held without would get no context, or no limit.
func noMPS() map[config.Backend]choice.Support {
	return map[config.Backend]choice.Support{config.BackendMPS: {
		Answer: choice.NotSupported, Reason: "this version gives no container the pipe directory and the /dev/shm of an MPS daemon",
	}}
}

// butMPS adds to the answers why MPS cannot hold a request, where it cannot.
func butMPS(req sharing.Request, but map[config.Backend]choice.Support) map[config.Backend]choice.Support {
	if req.GPUs < 2 {
		return but
	}
	out := maps.Clone(but)
	if out == nil {
		out = map[config.Backend]choice.Support{}
	}
	out[config.BackendMPS] = choice.Support{
		Answer: choice.NotSupported, Reason: fmt.Sprintf("a daemon of MPS serves one GPU, and %d are asked for", req.GPUs), Remedy: "ask for one GPU",
	}
	return out
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
			case h != nil && h.backend == config.BackendMPS:
				mps[f.GPU] = true
			default:
				others[f.GPU] = true
			}
		}
	}
	return mps, others
}

// unmixed are the other answers of backends on a GPU because of the shares that are there.
func unmixed(mps, others bool, but map[config.Backend]choice.Support) map[config.Backend]choice.Support {
	if !mps && !others {
		return but
	}
	out := maps.Clone(but)
	if out == nil {
		out = map[config.Backend]choice.Support{}
	}
	for _, b := range config.Backends() {
		switch {
		case mps && b != config.BackendMPS:
			out[b] = choice.Support{Answer: choice.NotSupported, Reason: "the GPU runs MPS for other grants"}
		case others && b == config.BackendMPS:
			out[b] = choice.Support{Answer: choice.NotSupported, Reason: "the GPU has grants that MPS does not hold"}
		}
	}
	return out
}

// shut closes a GPU that runs MPS to shares that MPS cannot hold.
func shut(s *allocator.GPUState, held config.Backend, why string) {
	if held != config.BackendMPS {
		s.Shut = "runs MPS for other grants, which cannot hold this one (" + why + ")"
	}
}
