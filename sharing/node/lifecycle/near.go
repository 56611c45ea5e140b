// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"errors"
	"fmt"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/audit"
	"github.com/kerf-gpu/kerf/sharing/backend/choice"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/mode"
	"github.com/kerf-gpu/kerf/sharing/node/place"
)

// refused counts the tries of a placement that failed, if a MIG instance was requested.
func (r *Reserver) refused(err error) error {
	if no, is := errors.AsType[*place.NoInstance](err); is {
		for range no.Tries {
			r.Observer.MIGRefused(string(no.Reason))
		}
	}
	return err
}

// moveNear moves a grant to the NUMA node that kubelet chose, if it should move and has room there.
func (r *Reserver) moveNear(l *ledger.Ledger, g ledger.Grant, ask sharing.ContainerRequest) error {
	near, c := ask.Advice.NUMA, g.Reservation
	if !place.ShouldMove(g, ask, l.GPU) {
		return nil
	}
	req, err := r.Settings.Config().Resolve(r.Settings.Pool(), ask.Request)
	if err != nil {
		return err
	}
	// It may keep a part of what it has.
	if err := l.Release(c.ID); err != nil {
		return err
	}
	p, ok := r.Place(l).PlaceOnNUMA(ask, req)
	if !ok {
		return l.Reserve(c)
	}
	was := c
	c.Placement = p
	if err := l.Reserve(c); err != nil {
		return errors.Join(fmt.Errorf("move the grant to NUMA node %d: %w", near[0].NUMA, err), l.Reserve(was))
	}
	r.Notify.Audit.Grant(audit.Release, was, 0, "", nil)
	r.Notify.Audit.Grant(audit.Reserve, c, c.Backend, c.LevelReason, nil)
	r.Log.Info("moved grant to the NUMA node of kubelet", "grant", c.ID, "numa", near[0].NUMA, "gpus", p.GPUs())
	r.Announce()
	return nil
}

// podNeed is what the containers of a pod that have no grant need.
func (r *Reserver) podNeed(asks []sharing.ContainerRequest, start time.Time) mode.Need {
	need := mode.Need{
		Who:   fmt.Sprintf("pod %s/%s", asks[0].Ref.Namespace, asks[0].Ref.Pod),
		Since: start, But: choice.PodsByMPS(r.NoMPSForPods), Containers: asks,
	}
	r.at(func(at *place.Node) { need.Requests = at.HardenedAll(at.Unreserved(asks)) })
	for _, a := range asks {
		need.Prefer = append(need.Prefer, a.Advice.GPUs...)
	}
	return need
}
