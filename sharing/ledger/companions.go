// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

// Companions are grants of the same requests of ResourceClaims for whole GPUs or a MIG instance. There is one for each
// container that uses the claims, of one or of several pods. They have the same devices together, and no cap within
// them. A GPU counts them once. Each has its own attachment, and ends independently.

// DevicesKey is equal for grants that have the same devices together. It is empty for a grant that has its devices
// alone, or a share of them.
func (c Reservation) DevicesKey() string {
	if len(c.Requests) == 0 || !sharing.OfClaims(c.Requests) || len(c.Placement) == 0 {
		return ""
	}
	for _, f := range c.Placement {
		if !f.Whole && f.MIG.None() {
			return ""
		}
	}
	return strings.Join(sharing.FormatResourceRequests(c.Requests), " ")
}

// CompanionOf is the first grant with devices that another grant of these requests can have, too; false without one. A
// claim that is not prepared any more gives nothing.
func CompanionOf(requests []sharing.ResourceRequest, grants []Grant) (Grant, bool) {
	for _, g := range grants {
		if g.Withdrawn != ClaimEnded && g.DevicesKey() != "" && slices.Equal(g.Requests, requests) {
			return g, true
		}
	}
	return Grant{}, false
}

// companions has, for each DevicesKey that is not empty, exactly the grants with it.
type companions map[string][]*entry

func (x companions) add(e *entry) {
	if key := e.grant.DevicesKey(); key != "" {
		x[key] = append(x[key], e)
	}
}

// counts reports whether a GPU counts the share of a grant: no companion has the same one. With active, only active
// companions matter.
func (x companions) counts(e *entry, f sharing.Share, active bool) bool {
	return !slices.ContainsFunc(x[e.grant.DevicesKey()], func(o *entry) bool {
		if o == e || active && o.active == nil {
			return false
		}
		p := o.grant.Placement
		if active {
			p = o.inForce()
		}
		there, on := p.On(f.GPU)
		return on && there == f
	})
}

// have reports whether a new grant has the devices of one that exists.
func (x companions) have(c Reservation) bool {
	list := x[c.DevicesKey()]
	return len(list) > 0 && slices.Equal(list[0].grant.Placement, c.Placement)
}

// checkCompanion checks a new grant that has the devices of one that exists. Only the health of the GPUs matters: it
// takes nothing of them.
func (p *pages) checkCompanion(c Reservation) error {
	for _, f := range c.Placement {
		if err := p.gpus[f.GPU].alive(); err != nil {
			return fmt.Errorf("gpu %q: %w", f.GPU, err)
		}
	}
	return nil
}

// Transfer gives a grant of ResourceClaims to another container, as a grant with a new ID. What is reserved, and with
// whom it shares its cap, stays. The grant is like a new one in all else.
//
// Errors: ErrNotFound for an unknown grant. ErrConflict for a taken ID, and a container that has a grant. ErrConflict
// also for a grant with an active or activating attachment, and one that something is being done with. ErrInvalid for a
// grant of no claim, or no container.
func Transfer(l *Ledger, from, to GrantID, owner Owner, kind sharing.ContainerKind,
	priority int32) error {
	e, ok := l.grants[from]
	if !ok {
		return fmt.Errorf("transfer grant %q: %w", from, sharing.ErrNotFound)
	}
	c := e.grant.clone()
	c.ID, c.Name, c.Owner, c.Kind, c.Priority = to, "", owner, kind, priority
	err := l.checkIdentity(c)
	switch {
	case err != nil:
	case !owner.Pod() || !sharing.OfClaims(c.Requests):
		err = fmt.Errorf("it is of no ResourceClaim, or goes to no container: %w", sharing.ErrInvalid)
	case e.active != nil || e.work != NoWork || e.next != nil && e.next.State == Activating:
		err = fmt.Errorf("it is in use: %w", sharing.ErrConflict)
	}
	if err != nil {
		return fmt.Errorf("transfer grant %q: %w", from, err)
	}
	followers := slices.Clone(l.joined[from])
	l.drop(e)
	if err := l.enter(c, nil); err != nil { // it was there before
		return fmt.Errorf("transfer: %w", err)
	}
	l.grants[to].fresh = true
	for _, f := range followers {
		without(l.joined, from, f)
		f.grant.With = to
		l.joined[to] = append(l.joined[to], f)
		l.touch(f)
	}
	for _, f := range c.Placement { // a GPU that has too many grants has as many as before
		l.gpus[f.GPU].excuse()
	}
	return nil
}
