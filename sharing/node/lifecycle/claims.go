// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/audit"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/place"
)

// claimGrant is the grant of a container with prepared ResourceClaims. kubelet prepares a claim once, for one pod.
func claimGrant(r *Reserver, l *ledger.Ledger, ask sharing.ContainerRequest) (id ledger.GrantID, made bool, err error) {
	found, err := place.ClaimGrant(l, ask)
	switch {
	case err != nil:
	case found.Own != "":
		return found.Own, false, nil
	case found.Companion != "":
		g, _ := l.Get(found.Companion)
		id, err = reserveCompanion(r, l, g, ask)
	default:
		id, err = takeOver(r, l, found.Former, ask)
	}
	return id, err == nil, err
}

// reserveCompanion makes the grant of a container that has whole GPUs or a MIG instance together with another.
func reserveCompanion(r *Reserver, l *ledger.Ledger, g ledger.Grant, ask sharing.ContainerRequest) (ledger.GrantID,
	error) {
	c := r.podGrant(ask, g.Request.Clone(), g.Placement.Clone())
	c.Terms = g.Terms
	return c.ID, r.hold(l, c, ask)
}

// takeOver gives the grant of a container that does not run again to the next one with the same ResourceClaims.
func takeOver(r *Reserver, l *ledger.Ledger, from ledger.GrantID, ask sharing.ContainerRequest) (ledger.GrantID,
	error) {
	former, _ := l.Get(from)
	c := r.podGrant(ask, former.Request, former.Placement)
	if err := ledger.Transfer(l, from, c.ID, c.Owner, ask.Kind, ask.Priority); err != nil {
		return "", err
	}
	r.Forget(l, former)
	r.Handles.Add(c.ID, nil)
	g, _ := l.Get(c.ID)
	r.Notify.Audit.Grant(audit.Release, former.Reservation, 0, "the next pod has its ResourceClaim", nil)
	r.Notify.Audit.Grant(audit.Reserve, g.Reservation, g.Backend, "taken over with its ResourceClaim", nil)
	return c.ID, nil
}
