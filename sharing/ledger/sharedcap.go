// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
)

// Root names the grant, itself or another, whose cap a grant shares. Grants with the same root have one cap, the sum of
// their reserved memory. Each of their attachments may use all of it.
func (c Reservation) Root() GrantID { return cmp.Or(c.With, c.ID) }

// checkWith checks that a grant can share the cap of the one that it names.
func (x *index) checkWith(c Reservation) error {
	if c.With == "" {
		return nil
	}
	leader, ok := x.grants[c.With]
	switch {
	case !ok:
		return fmt.Errorf("the cap of grant %q, which it shares: %w", c.With, sharing.ErrNotFound)
	case leader.grant.With != "" || !c.Owner.Pod() || c.Owner.PodUID != leader.grant.Owner.PodUID:
		return fmt.Errorf("grant %q has no cap that it can share: %w", c.With, sharing.ErrInvalid)
	case len(c.Placement) != len(leader.grant.Placement):
		return fmt.Errorf("other GPUs than those of grant %q, whose cap it shares: %w", c.With, sharing.ErrInvalid)
	}
	for _, f := range c.Placement {
		other, on := leader.grant.Placement.On(f.GPU)
		if !on || f.Whole || other.Whole || f.Burst != 0 || other.Burst != 0 {
			return fmt.Errorf("gpu %q: grant %q has no share there whose cap can be shared: %w", f.GPU, c.With,
				sharing.ErrInvalid)
		}
	}
	return nil
}

// sharers are the grants with one shared cap, by ID. A grant with a separate cap is alone here.
func (x *index) sharers(c Reservation) []*entry {
	out := slices.Clone(x.joined[c.Root()])
	if leader, ok := x.grants[c.Root()]; ok {
		out = append(out, leader)
	}
	slices.SortFunc(out, func(a, b *entry) int { return cmp.Compare(a.grant.ID, b.grant.ID) })
	return out
}

// inUse returns the id of another active grant among those that share a cap.
func inUse(sharers []*entry, e *entry) (GrantID, bool) {
	for _, s := range sharers {
		if s != e && s.active != nil {
			return s.grant.ID, true
		}
	}
	return "", false
}

// sharedCap is the sum of the shares of the grants with a shared cap on the GPUs of this one; nil without a shared cap.
func (x *index) sharedCap(c Reservation) sharing.Placement {
	if len(x.joined[c.Root()]) == 0 {
		return nil
	}
	all := x.sharers(c)
	if len(all) < 2 {
		return nil
	}
	sum := c.Placement.Clone()
	for _, s := range all {
		for i, f := range sum {
			if more, on := s.grant.Placement.On(f.GPU); on && s.grant.ID != c.ID {
				sum[i].Memory, _ = f.Memory.Add(more.Memory) // no more than what is booked there, which does not wrap
				sum[i].Percent += more.Percent
			}
		}
	}
	return sum
}

// SharedCapGrants are the ids of the grants that share a cap with this one, its own among them, in order. It is nil for
// an unknown grant.
func (x *index) SharedCapGrants(id GrantID) []GrantID {
	e, ok := x.grants[id]
	if !ok {
		return nil
	}
	var out []GrantID
	for _, s := range x.sharers(e.grant) {
		out = append(out, s.grant.ID)
	}
	return out
}
