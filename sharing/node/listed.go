// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/listing"
	"github.com/kerf-gpu/kerf/sharing/lists"
	"github.com/kerf-gpu/kerf/sharing/node/observe"
)

// owners are the grants to which the entries of the driver's lists may belong: those with a lease. It needs the lock.
func (r *Runtime) owners(grants []ledger.Grant) []lists.Grant {
	out := make([]lists.Grant, 0, len(grants))
	for _, g := range grants {
		if g.Lease == nil {
			continue
		}
		out = append(out, lists.Grant{
			Owner: listing.Owner(g.Claim.ID), Cgroup: g.Lease.Cgroup, Procs: r.groupOf(*g.Lease).Procs,
			On: func(gpu sharing.GPUID) bool { return observe.Touches(g.Claim.Placement, gpu) },
		})
	}
	return out
}

// observeView is what the sampler sees.
func (r *Runtime) observeView() observe.View {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := observe.View{Grants: r.ledger.Grants()}
	v.Owners = r.owners(v.Grants)
	if r.driver.Get() != nil {
		v.Driver, v.GPUs = r.driver.Get().Driver, r.driver.Get().GPUs
		if r.driver.Get().Caps != nil {
			v.Caps = r.driver.Get().Caps
		}
	}
	return v
}

// capsOf are the caps of grants, by id.
func capsOf(grants []ledger.Grant) map[string]sharing.Placement {
	out := map[string]sharing.Placement{}
	for _, g := range grants {
		out[string(g.Claim.ID)] = g.Caps()
	}
	return out
}
