// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
)

// Get returns the grant of that id.
func (l *Ledger) Get(id ClaimID) (Grant, bool) {
	e, ok := l.claims[id]
	if !ok {
		return Grant{}, false
	}
	return l.grant(e), true
}

// ByName returns the grant of that name. No grant has the empty name.
func (l *Ledger) ByName(name string) (Grant, bool) {
	id, ok := l.names[name]
	if !ok {
		return Grant{}, false
	}
	return l.Get(id)
}

// ByCgroup returns the grant that is leased to the cgroup of that directory. Whether it is still the same
// cgroup, the caller tells by the lease's inode.
func (l *Ledger) ByCgroup(dir string) (Grant, bool) {
	id, ok := l.cgroups[dir]
	if !ok {
		return Grant{}, false
	}
	return l.Get(id)
}

// ByContainer returns the grant of a pod's container, the one with the least id where facts brought several.
func (l *Ledger) ByContainer(podUID, container string) (Grant, bool) {
	var found *entry
	for _, e := range l.claims {
		if podUID != "" && e.claim.Owner.PodUID == podUID && e.claim.Owner.Container == container &&
			(found == nil || e.claim.ID < found.claim.ID) {
			found = e
		}
	}
	if found == nil {
		return Grant{}, false
	}
	return l.grant(found), true
}

// Grants returns all grants, by id. It is asked far more often than anything changes, so the answer is made once for each
// change: the caller changes nothing of it, nor of what it points to. It stays as it is whatever happens to the ledger.
func (l *Ledger) Grants() []Grant {
	if l.seen == nil {
		l.seen = make([]Grant, 0, len(l.order))
		for _, e := range l.order {
			if e.seen == nil {
				g := l.grant(e)
				e.seen = &g
			}
			l.seen = append(l.seen, *e.seen)
		}
	}
	return l.seen
}

// touch is called before or after a change of the entry, or of which claims share its cap: what was shown of it, and of
// these, is shown no longer.
func (l *Ledger) touch(e *entry) {
	l.seen, e.seen = nil, nil
	if len(l.joined[e.claim.Root()]) > 0 {
		for _, s := range l.sharers(e.claim) {
			s.seen = nil
		}
	}
}

// find is where the claim is in the order, or where it would be.
func (l *Ledger) find(id ClaimID) (int, bool) {
	return slices.BinarySearchFunc(l.order, id, func(e *entry, id ClaimID) int { return cmp.Compare(e.claim.ID, id) })
}

// GPUs returns all GPUs, by index and UUID: those of the inventory, and those that are gone with claims on
// them.
func (l *Ledger) GPUs() []View {
	out := make([]View, 0, len(l.gpus))
	for _, g := range l.gpus {
		out = append(out, g.view())
	}
	slices.SortFunc(out, func(a, b View) int {
		return cmp.Or(cmp.Compare(a.GPU.Index, b.GPU.Index), cmp.Compare(a.GPU.UUID, b.GPU.UUID))
	})
	return out
}

// GPU returns one GPU's page.
func (l *Ledger) GPU(id sharing.GPUID) (View, bool) {
	g, ok := l.gpus[id]
	if !ok {
		return View{}, false
	}
	return g.view(), true
}

// Overbooked returns the GPUs on which more is booked than they have, by index and UUID.
func (l *Ledger) Overbooked() []View {
	return slices.DeleteFunc(l.GPUs(), func(v View) bool { return !v.Overbooked })
}
