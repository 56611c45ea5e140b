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

// Grants returns all grants, by id.
func (l *Ledger) Grants() []Grant {
	out := make([]Grant, 0, len(l.claims))
	for _, e := range l.claims {
		out = append(out, l.grant(e))
	}
	slices.SortFunc(out, func(a, b Grant) int { return cmp.Compare(a.Claim.ID, b.Claim.ID) })
	return out
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
