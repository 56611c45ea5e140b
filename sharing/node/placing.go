// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/audit"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/place"
)

// placing is the node as a placement sees it now. It needs the lock.
func (r *Runtime) placing() *place.Node {
	at := &place.Node{
		Backends: place.Backends{Config: r.settings.Config(), Pool: r.settings.Pool(), Settings: map[sharing.GPUID]config.GPUSettings{}},
		GPUs:     r.ledger.GPUs(), Grants: r.ledger.Grants(), NoMPSForPods: r.opt.NoMPSForPods, OwnerOf: r.opt.ownerOf,
		Modes: r.modes, Health: r.Health, MIG: r.instances.Manager(),
	}
	for _, v := range at.GPUs {
		at.Settings[v.GPU.UUID] = r.settings.Of(v.GPU)
	}
	if att := r.Driver.Get(); att != nil {
		at.Reports = att.Levels
	}
	return at
}

// ownerOf is the user to whom a UID belongs.
func (o *Options) ownerOf(uid uint32) uint32 {
	if o.OwnerOf == nil {
		return uid
	}
	return o.OwnerOf(uid)
}

// refused counts the error of a placement if a MIG instance was requested.
func (r *Runtime) refused(err error) error {
	if no, is := errors.AsType[*place.NoInstance](err); is {
		r.opt.Observer.MIGRefused(string(no.Reason))
	}
	return err
}

// moveNear moves a grant to the NUMA node that kubelet chose, if it should move and has room there. It needs the lock.
func (r *Runtime) moveNear(g ledger.Grant, ask sharing.ContainerAsk) error {
	near, c := ask.Advice.Near, g.Claim
	if !place.ShouldMove(g, ask, r.ledger.GPU) {
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
	p, ok := r.placing().Near(req, near)
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
	r.log.Info("claim moved to the NUMA node that kubelet chose", "claim", c.ID, "numa", near[0].NUMA, "gpus", p.GPUs())
	r.changed.announce()
	return nil
}
