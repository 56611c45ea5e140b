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
func (c Claim) Root() ClaimID { return cmp.Or(c.With, c.ID) }

// checkWith checks that a claim can share the cap of the one that it names.
func (x *index) checkWith(c Claim) error {
	if c.With == "" {
		return nil
	}
	leader, ok := x.claims[c.With]
	switch {
	case !ok:
		return fmt.Errorf("the cap of claim %q, which it shares: %w", c.With, sharing.ErrNotFound)
	case leader.claim.With != "" || !c.Owner.Pod() || c.Owner.PodUID != leader.claim.Owner.PodUID:
		return fmt.Errorf("claim %q has no cap that it can share: %w", c.With, sharing.ErrInvalid)
	case len(c.Placement) != len(leader.claim.Placement):
		return fmt.Errorf("other GPUs than those of claim %q, whose cap it shares: %w", c.With, sharing.ErrInvalid)
	}
	for _, f := range c.Placement {
		other, on := leader.claim.Placement.On(f.GPU)
		if !on || f.Whole || other.Whole || f.Burst != 0 || other.Burst != 0 {
			return fmt.Errorf("gpu %q: claim %q has no share there whose cap can be shared: %w", f.GPU, c.With,
				sharing.ErrInvalid)
		}
	}
	return nil
}

// sharers are the claims with one shared cap, by ID. A claim with a separate cap is alone here.
func (x *index) sharers(c Claim) []*entry {
	out := slices.Clone(x.joined[c.Root()])
	if leader, ok := x.claims[c.Root()]; ok {
		out = append(out, leader)
	}
	slices.SortFunc(out, func(a, b *entry) int { return cmp.Compare(a.claim.ID, b.claim.ID) })
	return out
}

// inUse returns a leased claim, other than e, that shares e's cap.
func (x *index) inUse(e *entry) (ClaimID, bool) {
	for _, s := range x.sharers(e.claim) {
		if s != e && s.lease != nil {
			return s.claim.ID, true
		}
	}
	return "", false
}

// sharedCap is the sum of the shares of the grants with a shared cap on the GPUs of this one; nil without a shared cap.
func (x *index) sharedCap(c Claim) sharing.Placement {
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
			if more, on := s.claim.Placement.On(f.GPU); on && s.claim.ID != c.ID {
				sum[i].Memory, _ = f.Memory.Add(more.Memory) // no more than what is booked there, which does not wrap
				sum[i].Percent += more.Percent
			}
		}
	}
	return sum
}

// Sharers are the ids of the grants that share a cap with this one, its own among them, in order. It is nil for an
// unknown grant.
func (x *index) Sharers(id ClaimID) []ClaimID {
	e, ok := x.claims[id]
	if !ok {
		return nil
	}
	var out []ClaimID
	for _, s := range x.sharers(e.claim) {
		out = append(out, s.claim.ID)
	}
	return out
}
