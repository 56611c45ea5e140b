// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"slices"

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
		h := r.held[g.Claim.ID]
		if g.Lease == nil || h == nil {
			continue
		}
		out = append(out, lists.Grant{
			Owner: listing.Owner(g.Claim.ID), Cgroup: g.Lease.Cgroup, Procs: h.group.Procs,
			On: func(gpu sharing.GPUID) bool { return observe.Touches(g.Claim.Placement, gpu) },
		})
	}
	return out
}

// leasedOn reports whether the cgroup belongs to a lease with a fragment on that GPU.
func leasedOn(grants []ledger.Grant, gpu sharing.GPUID, dir string) bool {
	return slices.ContainsFunc(grants, func(g ledger.Grant) bool { return leaseHas(g, gpu, dir) })
}

// observeView is what the sampler sees.
func (r *Runtime) observeView() observe.View {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := observe.View{Grants: r.ledger.Grants()}
	v.Owners = r.owners(v.Grants)
	if r.att != nil {
		v.Driver, v.GPUs = r.att.Driver, r.att.GPUs
		if r.att.Caps != nil {
			v.Caps = r.att.Caps
		}
	}
	return v
}

// unclearWhy says why it cannot be told what a grant holds of a look's GPU; empty if it can be, or the driver does not tell.
func unclearWhy(look lists.Look, gpu int, grants ...listing.Owner) string {
	for _, line := range look.Lines {
		if line.Kind != listing.Unclear || !line.May(grants...) {
			continue
		}
		if look.Untold != nil {
			return fmt.Sprintf("process %d, which is listed on GPU %d, cannot be read: %v", line.PID, gpu, look.Untold)
		}
		if len(line.Suspects) == 0 {
			return fmt.Sprintf("process %d, which is listed on GPU %d, cannot be read", line.PID, gpu)
		}
		return fmt.Sprintf("process %d, which is listed on GPU %d, has the number of one that has ended, and the driver lists both as one", line.PID, gpu)
	}
	return ""
}
