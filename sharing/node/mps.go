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
