// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf/contextsize"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/place"
	"github.com/kerf-gpu/kerf/sharing/node/store"
)

// contextKind is the kind of a GPU. A shared MIG instance is of another kind than its GPU.
func contextKind(g sharing.GPU, driver string) contextsize.Kind {
	if g.Ref().IsInstance() {
		return contextsize.Kind{Model: g.Model + " instance", Driver: driver}
	}
	return contextsize.Kind{Model: g.Model, Driver: driver}
}

// contextSizes is what one context is taken to need on each GPU. Without a driver nothing is known.
func contextSizes(r *Runtime, gpus []ledger.View) map[sharing.GPURef]contextsize.Size {
	out := map[sharing.GPURef]contextsize.Size{}
	if r.Driver.Get() == nil {
		return out
	}
	for _, v := range gpus {
		kind := contextKind(v.GPU, r.Driver.Get().Driver.Version())
		measured, known := r.opt.Contexts.Size(kind)
		out[v.GPU.Ref()] = contextsize.Of(kind, measured, known)
	}
	return out
}

// ContextGPUs are the GPUs on which contexts could be measured; none while the node is not ready.
func (r *Runtime) ContextGPUs() []contextsize.GPU {
	if r.Driver.Get() == nil || len(r.NotReady()) > 0 {
		return nil
	}
	var at *place.Node
	r.Store.Read(func(l store.Reader) { at = r.placing(l) })
	var out []contextsize.GPU
	for _, v := range at.GPUs {
		g := v.GPU
		if g.Ref().IsInstance() || g.MIG {
			continue
		}
		out = append(out, contextsize.GPU{
			ID: g.UUID, Kind: contextKind(g, r.Driver.Get().Driver.Version()), Useful: at.Counts(g),
			Idle: v.Grants == 0 && g.Health == sharing.HealthOK && g.Cordoned == "" && r.Modes.Switching(g.UUID) == "",
		})
	}
	return out
}
