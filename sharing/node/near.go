// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator"
	"github.com/kerf-gpu/kerf/sharing/audit"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// chooseNear takes whole GPUs from the NUMA node that kubelet's topology manager chose. Ids of several nodes
// are no advice: either no node has enough GPUs, and then any split is on those nodes, or kubelet has no
// topology policy and took ids by chance, and then NVLink, which the allocator looks at, matters more.
func chooseNear(states []allocator.GPUState, req sharing.Request, near []sharing.Near) (sharing.Placement, bool) {
	if req.Kind != sharing.KindWhole || len(near) != 1 || near[0].Count != req.GPUs {
		return nil, false
	}
	local := slices.DeleteFunc(slices.Clone(states), func(s allocator.GPUState) bool { return s.GPU.NUMA != near[0].NUMA })
	p, err := allocator.Choose(local, req)
	return p, err == nil
}

// moveNear gives a claim that no container has had yet GPUs of the NUMA node that kubelet chose: the claim is made with the
// pod's sandbox, and the node is told only as the container is made. What the scheduler planned stays, and so do a claim
// for which that node has no room and one that containers share. It needs the lock.
func (r *Runtime) moveNear(g ledger.Grant, ask sharing.ContainerAsk) error {
	near, c := ask.Advice.Near, g.Claim
	if !g.Fresh || g.Work != ledger.NoWork || g.Lease != nil || ask.With != "" || ask.Joint.GPUs > 0 || len(near) != 1 || len(c.Placement) != near[0].Count {
		return nil
	}
	there, planned := true, len(ask.Advice.GPUs) == len(c.Placement)
	for _, f := range c.Placement {
		v, ok := r.ledger.GPU(f.GPU)
		if !f.Whole || !ok {
			return nil
		}
		there = there && v.GPU.NUMA == near[0].NUMA
		planned = planned && slices.Contains(ask.Advice.GPUs, f.GPU)
	}
	if there || planned {
		return nil
	}
	req, err := r.settings.Config().Resolve(r.settings.Pool(), ask.Request)
	if err != nil {
		return err
	}
	// It may keep a part of what it has.
	if err := r.ledger.Release(c.ID); err != nil {
		return err
	}
	req = r.hardened(req)
	p, ok := chooseNear(r.gpuStates(req.Profile, r.podsBut(req)), req, near)
	if !ok {
		return r.ledger.Claim(c)
	}
	was := c
	c.Placement = p
	if err := r.ledger.Claim(c); err != nil {
		return errors.Join(fmt.Errorf("move the claim to NUMA node %d: %w", near[0].NUMA, err), r.ledger.Claim(was))
	}
	r.notify.Audit.Claim(audit.Release, was, 0, "", nil)
	r.notify.Audit.Claim(audit.Claim, c, c.Backend, c.LevelReason, nil)
	r.log.Info("claim moved to the NUMA node that kubelet chose", "claim", c.ID, "numa", near[0].NUMA, "gpus", gpuIDs(p))
	r.changed.announce()
	return nil
}
