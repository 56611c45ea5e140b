// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"fmt"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend"
	"github.com/kerf-gpu/kerf/sharing/backend/driver"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/gpudriver"
)

// Backends are those of the node, with a driver that may be nil.
func (r *Core) Backends(att *gpudriver.Attached) backend.Set {
	s := backend.Set{MPS: r.MPS, Libkerf: r.Libkerf}
	if att != nil && att.Caps != nil {
		s.Driver = driver.Backend{Limits: att.Caps, Can: r.TakesLimit}
	}
	return s
}

// BackendOf is the backend of a grant, with a driver that may be nil.
func (r *Core) BackendOf(g ledger.Grant, att *gpudriver.Attached) backend.Backend {
	return r.Backends(att).Of(g.Claim.Backend)
}

// GrantOf is what a backend has to know of a grant. It needs the lock.
func (r *Core) GrantOf(g ledger.Grant) backend.Grant {
	o := g.Claim.Owner
	of := backend.Grant{
		ID: string(g.Claim.ID), Root: string(g.Claim.Root()), Placement: g.Claim.Placement, UID: o.UID, PID: o.PID, Domain: g.Claim.Domain,
		Contained: g.Claim.Standalone || o.Pod(), Pod: o.Pod(), Active: g.Lease != nil || r.UsedBeside(g),
	}
	if g.Lease != nil {
		of.Cgroup = g.Lease.Cgroup
	}
	return of
}

// Enforcer is the backend of a grant, and what it has to know of the grant.
func (r *Core) Enforcer(g ledger.Grant, att *gpudriver.Attached) (backend.Backend, backend.Grant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.ledger.Get(g.Claim.ID); !ok {
		return backend.None{}, backend.Grant{ID: string(g.Claim.ID)}
	}
	return r.BackendOf(g, att), r.GrantOf(g)
}

// byBackend has the backend of a grant do something before programs of the grant run. sharing.ErrStale if the grant ends
// meanwhile.
func (r *Core) byBackend(id ledger.ClaimID, do func(backend.Backend, backend.Grant) error) error {
	r.mu.Lock()
	g, ok := r.ledger.Get(id)
	b, of := r.BackendOf(g, r.Driver.Get()), r.GrantOf(g)
	r.mu.Unlock()
	if !ok {
		return nil
	}
	if err := do(b, of); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.ledger.Get(id); !ok {
		b.Release(of)
		return fmt.Errorf("grant %q ended: %w", id, sharing.ErrStale)
	}
	return nil
}

// TakesLimit reports whether the driver limits memory on a GPU now.
func (r *Core) TakesLimit(gpu sharing.GPUID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.canLimit(gpu)
}

// Prepare makes what the containers of a claim are to be made with.
func (r *Core) Prepare(ctx context.Context, id ledger.ClaimID) error {
	r.mu.Lock()
	g, _ := r.ledger.Get(id)
	inForce := g.Granted()
	u := g.Newest()
	switch {
	case len(u.Part) > 0:
		inForce = u.Part
	case r.UsedBeside(g):
		inForce = nil // it is in force, and changed by nobody but who looks at what is used
	}
	r.mu.Unlock()
	return r.byBackend(id, func(b backend.Backend, of backend.Grant) error { return b.Prepare(ctx, of, inForce) })
}

// enforce has the backend of a claim enforce its caps for programs that start next.
func (r *Core) enforce(ctx context.Context, id ledger.ClaimID, inForce sharing.Placement) error {
	return r.byBackend(id, func(b backend.Backend, of backend.Grant) error { return b.Enforce(ctx, of, inForce) })
}
