// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf/contextsize"
)

// contextKind is the kind of a GPU. A shared MIG instance is of another kind than its GPU.
func contextKind(g sharing.GPU, driver string) contextsize.Kind {
	if g.UUID.IsPart() {
		return contextsize.Kind{Model: g.Model + " instance", Driver: driver}
	}
	return contextsize.Kind{Model: g.Model, Driver: driver}
}

// contextSizes is what one context is taken to need on each GPU. Without a driver nothing is known. It needs the lock.
func contextSizes(r *Runtime) map[sharing.GPUID]contextsize.Size {
	out := map[sharing.GPUID]contextsize.Size{}
	if r.Driver.Get() == nil {
		return out
	}
	for _, v := range r.ledger.GPUs() {
		kind := contextKind(v.GPU, r.Driver.Get().Driver.Version())
		measured, known := r.opt.Contexts.Size(kind)
		out[v.GPU.UUID] = contextsize.Of(kind, measured, known)
	}
	return out
}

// ContextGPUs are the GPUs on which contexts could be measured; none while the node is not ready.
func (r *Runtime) ContextGPUs() []contextsize.GPU {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Driver.Get() == nil || len(r.Core.NotReady()) > 0 {
		return nil
	}
	at := r.placing()
	var out []contextsize.GPU
	for _, v := range at.GPUs {
		g := v.GPU
		if g.UUID.IsPart() || g.MIG {
			continue
		}
		out = append(out, contextsize.GPU{
			ID: g.UUID, Kind: contextKind(g, r.Driver.Get().Driver.Version()), Useful: at.Counts(g),
			Idle: v.Claims == 0 && g.Health == sharing.HealthOK && g.Cordoned == "" && r.Modes.Switching(g.UUID) == "",
		})
	}
	return out
}
