// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend"
	"github.com/kerf-gpu/kerf/sharing/backend/driver"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/gpudriver"
)

// backends are those of the node, with a driver that may be nil.
func (r *Runtime) backends(att *gpudriver.Attached) backend.Set {
	s := backend.Set{MPS: r.opt.MPS, Libkerf: r.libkerf}
	if att != nil && att.Caps != nil {
		s.Driver = driver.Backend{Limits: att.Caps, Can: r.takesLimit}
	}
	return s
}

// backendOf is the backend of a grant, with a driver that may be nil.
func (r *Runtime) backendOf(g ledger.Grant, att *gpudriver.Attached) backend.Backend {
	return r.backends(att).Of(g.Claim.Backend)
}

// grantOf is what a backend has to know of a grant. It needs the lock.
func (r *Runtime) grantOf(g ledger.Grant) backend.Grant {
	o := g.Claim.Owner
	of := backend.Grant{
		ID: string(g.Claim.ID), Root: string(g.Claim.Root()), Placement: g.Claim.Placement, UID: o.UID, PID: o.PID, Domain: g.Claim.Domain,
		Contained: g.Claim.Standalone || o.Pod(), Pod: o.Pod(), Active: g.Lease != nil || r.usedBeside(g),
	}
	if g.Lease != nil {
		of.Cgroup = g.Lease.Cgroup
	}
	return of
}

// enforcer is the backend of a grant, and what it has to know of the grant.
func (r *Runtime) enforcer(g ledger.Grant, att *gpudriver.Attached) (backend.Backend, backend.Grant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.ledger.Get(g.Claim.ID); !ok {
		return backend.None{}, backend.Grant{ID: string(g.Claim.ID)}
	}
	return r.backendOf(g, att), r.grantOf(g)
}

// byBackend has the backend of a grant do something before programs of the grant run. sharing.ErrStale if the grant ends
// meanwhile.
func (r *Runtime) byBackend(id ledger.ClaimID, do func(backend.Backend, backend.Grant) error) error {
	r.mu.Lock()
	g, ok := r.ledger.Get(id)
	b, of := r.backendOf(g, r.driver.Get()), r.grantOf(g)
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

// takesLimit reports whether the driver limits memory on a GPU now.
func (r *Runtime) takesLimit(gpu sharing.GPUID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.canLimit(gpu)
}

// prepare makes what the containers of a claim are to be made with.
func (r *Runtime) prepare(ctx context.Context, id ledger.ClaimID) error {
	r.mu.Lock()
	g, _ := r.ledger.Get(id)
	inForce := g.Granted()
	u := g.Newest()
	switch {
	case len(u.Part) > 0:
		inForce = u.Part
	case r.usedBeside(g):
		inForce = nil // it is in force, and changed by nobody but who looks at what is used
	}
	r.mu.Unlock()
	return r.byBackend(id, func(b backend.Backend, of backend.Grant) error { return b.Prepare(ctx, of, inForce) })
}

// enforce has the backend of a claim enforce its caps for programs that start next.
func (r *Runtime) enforce(ctx context.Context, id ledger.ClaimID, inForce sharing.Placement) error {
	return r.byBackend(id, func(b backend.Backend, of backend.Grant) error { return b.Enforce(ctx, of, inForce) })
}

// weaker is what enforces the cap of a lease of libkerf or MPS now, and why that is less than it was given; ok is false if it
// is not less. It needs the lock.
func (r *Runtime) weaker(g ledger.Grant) (level sharing.Level, why string, ok bool) {
	if g.Lease == nil {
		return 0, "", false
	}
	way, found := backend.PropertiesOf(g.Claim.Backend), r.guard.Of(g.Claim.ID)
	switch {
	case way.Served: // which the reactive backend always watches
		return sharing.LevelReactive, found.Exceeds, found.Exceeds != "" && found.Lost == ""
	case !way.Counts:
		return 0, "", false
	}
	fault := r.libkerf.Check(r.grantOf(g))
	if fault.Unknown != "" {
		return sharing.LevelUnknown, fault.Unknown, true
	}
	why = joinSentences([]string{found.Exceeds, fault.Bypassed})
	if r.watches(g) {
		return sharing.LevelReactive, why, why != ""
	}
	return sharing.LevelNone, why, why != ""
}
