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

// index finds the grants that are booked.
type index struct {
	// grants has every grant.
	grants map[GrantID]*entry
	// names has exactly the grants with a name, cgroups exactly those with an attachment.
	names   map[string]GrantID
	cgroups map[string]GrantID
	// containers has exactly the containers of attachments.
	containers map[string]GrantID
	// pods has, for each pod with grants, exactly these, by ID.
	pods map[string][]*entry
	// joined has, for each grant whose cap others share, exactly these others.
	joined     map[GrantID][]*entry
	companions companions
	// order has the grants by id. seen is what Grants returned last, nil once that is no longer true.
	order []*entry
	seen  []Grant
	// changed has the entries that may have steps which Transitions has not returned, in the order of their first one.
	changed []*entry
}

// Get returns the grant of that id. The caller must not change what it points to.
func (x *index) Get(id GrantID) (Grant, bool) {
	e, ok := x.grants[id]
	if !ok {
		return Grant{}, false
	}
	return *e.show(x), true
}

// ByContainer returns the grant of a pod's container, the one with the least id where facts brought several. The caller
// must not change what it points to.
func (x *index) ByContainer(podUID, container string) (Grant, bool) {
	for _, e := range x.pods[podUID] {
		if e.grant.Owner.Container == container {
			return *e.show(x), true
		}
	}
	return Grant{}, false
}

// ByPod returns the grants of a pod's containers, in order.
func (x *index) ByPod(podUID string) []GrantID {
	var ids []GrantID
	for _, e := range x.pods[podUID] {
		ids = append(ids, e.grant.ID)
	}
	return ids
}

// Grants returns all grants, by id. Calls are far more frequent than changes, so the answer is made once for each
// change. The caller must not change it, nor what it points to. Later changes of the ledger do not change it either.
func (x *index) Grants() []Grant {
	if x.seen == nil {
		x.seen = make([]Grant, 0, len(x.order))
		for _, e := range x.order {
			x.seen = append(x.seen, *e.show(x))
		}
	}
	return x.seen
}

// AppendGrants appends all grants, by id, as Grants returns them. If a grant has not changed since an earlier call, its
// pointer is the same.
func (x *index) AppendGrants(to []*Grant) []*Grant {
	for _, e := range x.order {
		to = append(to, e.show(x))
	}
	return to
}

// show returns the entry as it is in x, from a copy that is made once for each change.
func (e *entry) show(x *index) *Grant {
	if e.seen == nil {
		g := x.grant(e)
		e.seen = &g
	}
	return e.seen
}

// touch is called before or after a change of the entry, or of the grants that share its cap. It drops the cached views
// of all of them.
func (x *index) touch(e *entry) {
	x.seen, e.seen = nil, nil
	if !e.changed {
		e.changed, x.changed = true, append(x.changed, e)
	}
	if len(x.joined[e.grant.Root()]) > 0 {
		for _, s := range x.sharers(e.grant) {
			s.seen = nil
		}
	}
}

// findEntry is where the grant is in a list by ID, or where it would be.
func findEntry(all []*entry, id GrantID) (int, bool) {
	return slices.BinarySearchFunc(all, id, func(e *entry, id GrantID) int { return cmp.Compare(e.grant.ID, id) })
}

// entry is a grant with its attachments.
type entry struct {
	grant Reservation
	// attachment is the enforced attachment, and next the one that is not yet enforced; nil for none.
	active, next *Attachment
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

// inForce is what the entry's attachment may use.
func (e *entry) inForce() sharing.Placement {
	if len(e.active.Part) > 0 {
		return e.active.Part
	}
	return e.grant.Placement
}

func (x *index) grant(e *entry) Grant {
	g := Grant{Reservation: e.grant.clone(), SharedCap: x.sharedCap(e.grant)}
	g.Active, g.Next, g.Work, g.Withdrawn, g.Fresh = e.active.clone(), e.next.clone(), e.work, e.withdrawn, e.fresh
	if len(e.burst) > 0 {
		g.Burst = maps.Clone(e.burst)
	}
	return g
}

func (x *index) checkIdentity(c Reservation) error {
	if c.ID == "" {
		return fmt.Errorf("no id: %w", sharing.ErrInvalid)
	}
	if _, taken := x.grants[c.ID]; taken {
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
		return fmt.Errorf("container %q of pod %q holds grant %q: %w", c.Owner.Container, c.Owner.PodUID, held.ID,
			sharing.ErrConflict)
	}
	return nil
}

// ByContainerID returns the grant that the container instance of that id uses, or is to use next.
func (x *index) ByContainerID(containerID string) (GrantID, bool) {
	id, ok := x.containers[containerID]
	return id, ok
}

// ByCgroup returns the grant whose attachment has that cgroup.
func (x *index) ByCgroup(dir string) (GrantID, bool) {
	id, ok := x.cgroups[dir]
	return id, ok
}

// setNext makes an attachment, or with nil none, the next to use a grant.
func (x *index) setNext(e *entry, a *Attachment) {
	x.touch(e)
	if e.next != nil && (e.active == nil || e.active.ContainerID != e.next.ContainerID) {
		delete(x.containers, e.next.ContainerID)
	}
	e.next = a.clone()
	if a != nil && a.ContainerID != "" {
		x.containers[a.ContainerID] = e.grant.ID
	}
}

func (x *index) checkActive(c Reservation, active Attachment) error {
	if active.Cgroup == "" || active.Inode == 0 {
		return fmt.Errorf("attachment without cgroup and inode: %w", sharing.ErrInvalid)
	}
	if err := checkPart(c.Placement, active.Part); err != nil {
		return err
	}
	if holder, taken := x.cgroups[active.Cgroup]; taken {
		return fmt.Errorf("cgroup %q is in use by grant %q: %w", active.Cgroup, holder, sharing.ErrConflict)
	}
	if user, taken := x.containers[active.ContainerID]; taken && user != c.ID {
		return fmt.Errorf("container %q uses grant %q: %w", active.ContainerID, user, sharing.ErrConflict)
	}
	return nil
}

// add files a checked grant.
func (x *index) add(c Reservation) *entry {
	e := &entry{grant: c.clone(), published: unborn()}
	x.grants[c.ID] = e
	at, _ := findEntry(x.order, c.ID)
	x.order = slices.Insert(x.order, at, e)
	if c.Name != "" {
		x.names[c.Name] = c.ID
	}
	if uid := c.Owner.PodUID; uid != "" {
		at, _ := findEntry(x.pods[uid], c.ID)
		x.pods[uid] = slices.Insert(x.pods[uid], at, e)
	}
	if c.With != "" {
		x.joined[c.With] = append(x.joined[c.With], e)
	}
	x.companions.add(e)
	x.touch(e)
	return e
}

// remove takes a grant without an attachment out again.
func (x *index) remove(e *entry) {
	x.touch(e)
	delete(x.grants, e.grant.ID)
	if at, found := findEntry(x.order, e.grant.ID); found {
		x.order = slices.Delete(x.order, at, at+1)
	}
	if e.grant.Name != "" {
		delete(x.names, e.grant.Name)
	}
	without(x.pods, e.grant.Owner.PodUID, e)
	without(x.joined, e.grant.With, e)
	without(x.companions, e.grant.DevicesKey(), e)
}

// without removes an entry from the list of a key. A list that becomes empty goes.
func without[K comparable](lists map[K][]*entry, key K, e *entry) {
	left := slices.DeleteFunc(lists[key], func(o *entry) bool { return o == e })
	if len(left) == 0 {
		delete(lists, key)
		return
	}
	lists[key] = left
}
