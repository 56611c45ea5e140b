// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend"
	"github.com/kerf-gpu/kerf/sharing/backend/choice"
	"github.com/kerf-gpu/kerf/sharing/backend/mps"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// DaemonsOf is the cgroup in which the MPS daemons of grants run, relative to the hierarchy's mount as parent is.
func DaemonsOf(parent string) string { return parent + ".mps" }

// domainOf names who may share a daemon of MPS with an owner; it needs the lock.
func (r *Runtime) domainOf(o ledger.Owner) string {
	if r.settings.Pool().MPSSharing == config.MPSSharingPool {
		return mps.PoolDomain(o.Pod())
	}
	return mps.DomainOf(o.Pod(), o.Namespace, o.UID)
}

// Served are the grants that need a daemon of MPS.
func (r *Runtime) Served() []backend.Grant {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []backend.Grant
	for _, g := range r.ledger.Grants() {
		// The containers of a pod's claim may have been made already, and not be armed yet.
		if backend.PropertiesOf(g.Claim.Backend).Served && (g.Lease != nil || g.Claim.Owner.Pod()) {
			out = append(out, r.GrantOf(g))
		}
	}
	return out
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
		for _, f := range g.Claim.Placement {
			switch {
			case f.Whole:
			case backend.PropertiesOf(g.Claim.Backend).Served:
				mps[f.GPU] = true
			default:
				others[f.GPU] = true
			}
		}
	}
	return mps, others
}
