// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/health"
	"github.com/kerf-gpu/kerf/sharing/node/observe"
)

// views are what the parts of the node see of the runtime, each at one moment.
type views struct{ r *Runtime }

// observe is what the sampler sees.
func (n views) observe() observe.View {
	r := n.r
	v := observe.View{Grants: r.Store.Grants()}
	v.Owners = r.Owners(v.Grants)
	if r.Driver.Get() != nil {
		v.Driver, v.GPUs = r.Driver.Get().Driver, r.Driver.Get().GPUs
		if r.Driver.Get().Caps != nil {
			v.Caps = r.Driver.Get().Caps
		}
	}
	return v
}

// capsOf are the caps of grants, by id.
func capsOf(grants []ledger.Grant) map[string]sharing.Placement {
	out := map[string]sharing.Placement{}
	for _, g := range grants {
		out[string(g.ID)] = g.Caps()
	}
	return out
}

// health is what the runner of the health sees.
func (n views) health() health.View {
	grants, gpus := n.r.Store.View()
	return health.View{Rule: n.r.settings.Pool().Health, GPUs: gpus, Grants: grants}
}
