// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
)

// Check verifies the ledger's invariants by reckoning everything anew from the claims. An error means a bug
// in this package; the agent then grants nothing more. Every breach is in it.
func (l *Ledger) Check() error {
	var errs []error
	breach := func(format string, args ...any) { errs = append(errs, fmt.Errorf("ledger: "+format, args...)) }
	held, leased := map[sharing.GPUID]sum{}, map[sharing.GPUID]sum{}
	lent := map[sharing.GPUID]sharing.Bytes{}
	names, leases, joined, containers := 0, 0, 0, 0
	for id, e := range l.claims {
		if id == "" || id != e.claim.ID {
			breach("claim %q is filed under %q", e.claim.ID, id)
		}
		if err := distinct(e.claim.Placement); err != nil {
			breach("claim %q: %w", id, err)
		}
		if e.claim.Name != "" {
			names++
			if l.names[e.claim.Name] != id {
				breach("claim %q is not found by its name %q", id, e.claim.Name)
			}
		}
		if e.claim.With != "" {
			joined++
			if e.claim.With == id || !slices.Contains(l.joined[e.claim.With], e) {
				breach("claim %q is not found by claim %q, whose cap it shares", id, e.claim.With)
			}
		}
		containers += l.checkAttachments(e, breach)
		if e.lease != nil {
			leases++
			if e.lease.Cgroup == "" || l.cgroups[e.lease.Cgroup] != id {
				breach("claim %q is not found by its cgroup %q", id, e.lease.Cgroup)
			}
		}
		if e.lease != nil {
			if err := checkPart(e.claim.Placement, e.lease.Part); err != nil {
				breach("claim %q: %w", id, err)
			}
			for _, f := range e.inForce() {
				leased[f.GPU], _ = leased[f.GPU].with(f) // within held
			}
		}
		for gpu, loan := range e.lent {
			f, ok := e.claim.Placement.On(gpu)
			if loan == 0 || !ok || loan > f.Burst.SubFloor(f.Memory) || e.lease == nil || len(e.lease.Part) > 0 {
				breach("claim %q is lent %s on gpu %q, and may not be", id, loan, gpu)
			}
			lent[gpu], _ = lent[gpu].Add(loan) // compared with a sum that was checked
		}
		for _, f := range e.claim.Placement {
			var err error
			if held[f.GPU], err = held[f.GPU].with(f); err != nil {
				breach("gpu %q: %w", f.GPU, err)
			}
			if l.gpus[f.GPU] == nil {
				breach("claim %q is on gpu %q, which has no page", id, f.GPU)
			}
		}
	}
	if names != len(l.names) || leases != len(l.cgroups) {
		breach("%d names for %d claims, %d cgroups for %d leases", len(l.names), names, len(l.cgroups), leases)
	}
	if containers != len(l.containers) {
		breach("%d containers for %d attachments", len(l.containers), containers)
	}
	for _, all := range l.joined {
		joined -= len(all)
	}
	if joined != 0 {
		breach("%d claims more share a cap than are found", joined)
	}
	if !slices.IsSortedFunc(l.order, func(a, b *entry) int { return cmp.Compare(a.claim.ID, b.claim.ID) }) || len(l.order) != len(l.claims) {
		breach("%d claims are in order, of %d", len(l.order), len(l.claims))
	}
	for i, g := range l.seen {
		if i >= len(l.order) || !reflect.DeepEqual(g, l.grant(l.order[i])) {
			breach("claim %q is shown as it was", g.Claim.ID)
		}
	}
	for id, g := range l.gpus {
		if err := g.check(id, held[id], leased[id], lent[id]); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// checkAttachments checks the attachments of one claim, and returns how many of them are containers.
func (l *Ledger) checkAttachments(e *entry, breach func(string, ...any)) (containers int) {
	id := e.claim.ID
	if a := e.lease; a != nil && !a.inForce() {
		breach("claim %q is leased to an attachment that is %s", id, a.State)
	}
	if a := e.next; a != nil && (a.inForce() || a.State == Reserved || (a.Cgroup != "") != (a.State == Activating)) {
		breach("claim %q is to be used next by an attachment that is %s, of cgroup %q", id, a.State, a.Cgroup)
	}
	if e.lease != nil && e.next != nil && (e.next.State == Activating || e.next.ContainerID == e.lease.ContainerID) {
		breach("claim %q is used, and is to be used next, by container %q, which is %s", id, e.next.ContainerID, e.next.State)
	}
	for _, a := range []*Attachment{e.lease, e.next} {
		if a == nil || a.ContainerID == "" {
			continue
		}
		containers++
		if l.containers[a.ContainerID] != id {
			breach("claim %q is not found by its container %q", id, a.ContainerID)
		}
	}
	return containers
}

func (g *gpu) check(id sharing.GPUID, held, leased sum, lent sharing.Bytes) error {
	switch {
	case g.facts.UUID != id:
		return fmt.Errorf("ledger: gpu %q is filed under %q", g.facts.UUID, id)
	case g.held != held || g.leased != leased:
		return fmt.Errorf("ledger: gpu %q: booked %+v and leased %+v, its claims say %+v and %+v", id, g.held, g.leased, held, leased)
	case g.lent != lent || g.overlent() != g.lentExcused:
		return fmt.Errorf("ledger: gpu %q: lent %s, its claims say %s, too much %v, from facts %v", id, g.lent, lent, g.overlent(), g.lentExcused)
	case g.over() != g.excused:
		return fmt.Errorf("ledger: gpu %q: overbooked %v, from facts %v: %+v on %s", id, g.over(), g.excused, held, g.facts.Bookable())
	case !g.present && held.claims == 0:
		return fmt.Errorf("ledger: gpu %q is gone and has a page without claims", id)
	case g.facts.Health == sharing.HealthOK && !g.present:
		return fmt.Errorf("ledger: gpu %q is gone and healthy", id)
	}
	return nil
}
