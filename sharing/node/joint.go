// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/place"
)

// claimWith makes the claim of a container that shares the cap of another of its pod. It needs the lock.
func (r *Runtime) claimWith(ask sharing.ContainerAsk) (ledger.ClaimID, error) {
	leader, ok := r.ledger.ByContainer(ask.Ref.PodUID, ask.With)
	if !ok {
		return "", fmt.Errorf("container %q, whose cap it shares, has no claim yet: %w", ask.With, sharing.ErrUnavailable)
	}
	req, err := r.settings.Config().Resolve(r.settings.Pool(), ask.Request)
	if err != nil {
		return "", err
	}
	c := r.podClaim(ask, req, place.PartOn(req, leader.Claim.Placement, r.ledger.GPU))
	c.With, c.Terms = leader.Claim.ID, leader.Claim.Terms
	return c.ID, r.hold(c, ask)
}

// sharesAs reports whether a claim shares, or does not share, the cap that the container is to share now. It needs the
// lock.
func (r *Runtime) sharesAs(g ledger.Grant, ask sharing.ContainerAsk) bool {
	if ask.With == "" {
		return g.Claim.With == ""
	}
	leader, ok := r.ledger.ByContainer(ask.Ref.PodUID, ask.With)
	return ok && g.Claim.With == leader.Claim.ID
}

// sharersOf are the grants that have a cap in common with this one, its own among them. It needs the lock.
func (r *Runtime) sharersOf(id ledger.ClaimID) []ledger.Grant {
	var out []ledger.Grant
	for _, one := range r.ledger.Sharers(id) {
		g, _ := r.ledger.Get(one)
		out = append(out, g)
	}
	return out
}

// speaker is the lease that stands for all that share a cap where they are looked at as one: the first of them. It needs
// the lock.
func (r *Runtime) speaker(g ledger.Grant) ledger.ClaimID {
	if g.Joint != nil {
		for _, o := range r.sharersOf(g.Claim.ID) {
			if o.Lease != nil {
				return o.Claim.ID
			}
		}
	}
	return g.Claim.ID
}

// jointWhy says of a grant that shares a cap who does and how much it is; it is empty for others. It needs the lock.
func (r *Runtime) jointWhy(g ledger.Grant) string {
	if g.Joint == nil {
		return ""
	}
	var names []string
	for _, o := range r.sharersOf(g.Claim.ID) {
		names = append(names, o.Claim.Owner.Container)
	}
	slices.Sort(names)
	memory, _ := g.Joint.Total()
	return fmt.Sprintf("one cap of %s for the containers %s", memory, strings.Join(names, ", "))
}
