// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend"
	"github.com/kerf-gpu/kerf/sharing/backend/driver"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/gpudriver"
	"github.com/kerf-gpu/kerf/sharing/node/store"
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
	return r.Backends(att).Of(g.Backend)
}

// GrantOf is what a backend has to know of a grant.
func GrantOf(l store.Reader, g ledger.Grant) backend.Grant {
	o := g.Owner
	of := backend.Grant{
		ID: string(g.ID), Root: string(g.Root()), Placement: g.Placement, UID: o.UID, PID: o.PID,
		Domain:    g.Domain,
		Contained: g.Standalone || o.Pod(), Pod: o.Pod(), Active: g.Active != nil || SharedCapUsed(l, g),
	}
	if g.Active != nil {
		of.Cgroup = g.Active.Cgroup
	}
	return of
}

// Enforcer is the backend of a grant, and what it has to know of the grant.
func (r *Core) Enforcer(g ledger.Grant, att *gpudriver.Attached) (b backend.Backend, of backend.Grant) {
	b, of = backend.None{}, backend.Grant{ID: string(g.ID)}
	r.Store.Read(func(l store.Reader) {
		if _, ok := l.Get(g.ID); ok {
			b, of = r.BackendOf(g, att), GrantOf(l, g)
		}
	})
	return b, of
}

// TakesLimit reports whether the driver limits memory on a GPU now.
func (r *Core) TakesLimit(gpu sharing.GPURef) (can bool) {
	r.Store.Read(func(l store.Reader) { can = r.canLimit(l, gpu) })
	return can
}
