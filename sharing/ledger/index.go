// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
)

// index finds the claims that are booked.
type index struct {
	// claims has every claim.
	claims map[ClaimID]*entry
	// names has exactly the claims with a name, cgroups exactly those with a lease.
	names   map[string]ClaimID
	cgroups map[string]ClaimID
	// containers has exactly the containers of attachments.
	containers map[string]ClaimID
	// joined has, for each claim whose cap others share, exactly these others.
	joined map[ClaimID][]*entry
	// order has the claims by id. seen is what Grants returned last, nil once that is no longer true.
	order []*entry
	seen  []Grant
	// changed has the entries that may have steps which Transitions has not returned, in the order of their first one.
	changed []*entry
}

// Get returns the grant of that id.
func (x *index) Get(id ClaimID) (Grant, bool) {
	e, ok := x.claims[id]
	if !ok {
		return Grant{}, false
	}
	return x.grant(e), true
}

// ByContainer returns the grant of a pod's container, the one with the least id where facts brought several.
func (x *index) ByContainer(podUID, container string) (Grant, bool) {
	var found *entry
	for _, e := range x.claims {
		if podUID != "" && e.claim.Owner.PodUID == podUID && e.claim.Owner.Container == container &&
			(found == nil || e.claim.ID < found.claim.ID) {
			found = e
		}
	}
	if found == nil {
		return Grant{}, false
	}
	return x.grant(found), true
}

// Grants returns all grants, by id. Calls are far more frequent than changes, so the answer is made once for each
// change. The caller must not change it, nor what it points to. Later changes of the ledger do not change it either.
func (x *index) Grants() []Grant {
	if x.seen == nil {
		x.seen = make([]Grant, 0, len(x.order))
		for _, e := range x.order {
			if e.seen == nil {
				g := x.grant(e)
				e.seen = &g
			}
			x.seen = append(x.seen, *e.seen)
		}
	}
	return x.seen
}

// touch is called before or after a change of the entry, or of the grants that share its cap. It drops the cached views
// of all of them.
func (x *index) touch(e *entry) {
	x.seen, e.seen = nil, nil
	if !e.changed {
		e.changed, x.changed = true, append(x.changed, e)
	}
	if len(x.joined[e.claim.Root()]) > 0 {
		for _, s := range x.sharers(e.claim) {
			s.seen = nil
		}
	}
}

// find is where the claim is in the order, or where it would be.
func (x *index) find(id ClaimID) (int, bool) {
	return slices.BinarySearchFunc(x.order, id, func(e *entry, id ClaimID) int { return cmp.Compare(e.claim.ID, id) })
}

// entry is a claim with its attachments.
type entry struct {
	claim Claim
	// lease is the enforced attachment, and next the one that is not yet enforced; nil for none.
	lease, next *Attachment
	// work, withdrawn and fresh are as in Grant.
	work      Work
	withdrawn Withdrawal
	fresh     bool
	// burst has no entry of 0. It is empty without an active grant, and while the cap covers only a part of the grant.
	// Each entry is at most the share's Burst minus its Memory.
	burst map[sharing.GPURef]sharing.Bytes
	// seen is the entry as Grants shows it, nil once that is no longer true.
	seen *Grant
	// published are the transitions that Transitions returned last. changed is true if there may be more to return.
	published life
	changed   bool
}

// inForce is what the entry's lease may use.
func (e *entry) inForce() sharing.Placement {
	if len(e.lease.Part) > 0 {
		return e.lease.Part
	}
	return e.claim.Placement
}

func (x *index) grant(e *entry) Grant {
	g := Grant{Claim: e.claim.clone(), SharedCap: x.sharedCap(e.claim)}
	g.Lease, g.Next, g.Work, g.Withdrawn, g.Fresh = e.lease.clone(), e.next.clone(), e.work, e.withdrawn, e.fresh
	if len(e.burst) > 0 {
		g.Burst = maps.Clone(e.burst)
	}
	return g
}

func (x *index) checkIdentity(c Claim) error {
	if c.ID == "" {
		return fmt.Errorf("no id: %w", sharing.ErrInvalid)
	}
	if _, taken := x.claims[c.ID]; taken {
		return fmt.Errorf("id is taken: %w", sharing.ErrConflict)
	}
	if c.Name != "" {
		if err := sharing.ValidateName("name", c.Name); err != nil {
			return err
		}
		if _, taken := x.names[c.Name]; taken {
			return fmt.Errorf("name %q is taken by a living grant: %w", c.Name, sharing.ErrConflict)
		}
	}
	if (c.Owner.PodUID == "") != (c.Owner.Container == "") {
		return fmt.Errorf("owner has a pod without a container, or the reverse: %w", sharing.ErrInvalid)
	}
	if held, ok := x.ByContainer(c.Owner.PodUID, c.Owner.Container); ok {
		return fmt.Errorf("container %q of pod %q holds claim %q: %w", c.Owner.Container, c.Owner.PodUID, held.Claim.ID,
			sharing.ErrConflict)
	}
	return nil
}

// ByContainerID returns the claim that the container instance of that id uses, or is to use next.
func (x *index) ByContainerID(containerID string) (ClaimID, bool) {
	id, ok := x.containers[containerID]
	return id, ok
}

// ByCgroup returns the claim whose lease has that cgroup.
func (x *index) ByCgroup(dir string) (ClaimID, bool) {
	id, ok := x.cgroups[dir]
	return id, ok
}

// setNext makes an attachment, or with nil none, the next to use a claim.
func (x *index) setNext(e *entry, a *Attachment) {
	x.touch(e)
	if e.next != nil && (e.lease == nil || e.lease.ContainerID != e.next.ContainerID) {
		delete(x.containers, e.next.ContainerID)
	}
	e.next = a.clone()
	if a != nil && a.ContainerID != "" {
		x.containers[a.ContainerID] = e.claim.ID
	}
}

func (x *index) checkLease(c Claim, lease Attachment) error {
	if lease.Cgroup == "" || lease.Inode == 0 {
		return fmt.Errorf("lease without cgroup and inode: %w", sharing.ErrInvalid)
	}
	if err := checkPart(c.Placement, lease.Part); err != nil {
		return err
	}
	if holder, taken := x.cgroups[lease.Cgroup]; taken {
		return fmt.Errorf("cgroup %q is leased to claim %q: %w", lease.Cgroup, holder, sharing.ErrConflict)
	}
	if user, taken := x.containers[lease.ContainerID]; taken && user != c.ID {
		return fmt.Errorf("container %q uses claim %q: %w", lease.ContainerID, user, sharing.ErrConflict)
	}
	return nil
}

// add files a checked claim.
func (x *index) add(c Claim) *entry {
	e := &entry{claim: c.clone(), published: unborn()}
	x.claims[c.ID] = e
	at, _ := x.find(c.ID)
	x.order = slices.Insert(x.order, at, e)
	if c.Name != "" {
		x.names[c.Name] = c.ID
	}
	if c.With != "" {
		x.joined[c.With] = append(x.joined[c.With], e)
	}
	x.touch(e)
	return e
}

// remove takes a claim without a lease out again.
func (x *index) remove(e *entry) {
	x.touch(e)
	delete(x.claims, e.claim.ID)
	if at, found := x.find(e.claim.ID); found {
		x.order = slices.Delete(x.order, at, at+1)
	}
	if e.claim.Name != "" {
		delete(x.names, e.claim.Name)
	}
	if with := e.claim.With; with != "" {
		x.joined[with] = slices.DeleteFunc(x.joined[with], func(o *entry) bool { return o == e })
		if len(x.joined[with]) == 0 {
			delete(x.joined, with)
		}
	}
}
