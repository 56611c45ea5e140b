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

// Check verifies the invariants: it computes all sums again from the grants. An error is a bug in this package, and
// names every violation. The agent then grants nothing more.
func (l *Ledger) Check() error {
	c := checked{Ledger: l, held: map[sharing.GPURef]sum{}, leased: map[sharing.GPURef]sum{},
		burst: map[sharing.GPURef]sharing.Bytes{}}
	for id, e := range l.claims {
		c.checkIndexed(id, e)
		c.checkAttachments(e)
		c.checkAmounts(e)
	}
	c.checkIndexes()
	for id, g := range l.gpus {
		if err := g.check(id, c.held[id], c.leased[id], c.burst[id]); err != nil {
			c.errs = append(c.errs, err)
		}
	}
	return errors.Join(c.errs...)
}

// checked is what the claims say, added up.
type checked struct {
	*Ledger
	errs []error
	// held, leased and burst are sums on each GPU: reserved, active, and burst memory.
	held, leased map[sharing.GPURef]sum
	burst        map[sharing.GPURef]sharing.Bytes
	// named, leases, followers and attached count what the indexes must have.
	named, leases, followers, attached int
}

func (c *checked) breach(format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf("ledger: "+format, args...))
}

// checkIndexed checks that a claim is found by what it is filed under.
func (c *checked) checkIndexed(id ClaimID, e *entry) {
	if id == "" || id != e.claim.ID {
		c.breach("claim %q is filed under %q", e.claim.ID, id)
	}
	if e.claim.Name != "" {
		c.named++
		if c.names[e.claim.Name] != id {
			c.breach("claim %q is not found by its name %q", id, e.claim.Name)
		}
	}
	if e.claim.With != "" {
		c.followers++
		if e.claim.With == id || !slices.Contains(c.joined[e.claim.With], e) {
			c.breach("claim %q is not found by claim %q, whose cap it shares", id, e.claim.With)
		}
	}
	if e.lease != nil {
		c.leases++
		if e.lease.Cgroup == "" || c.cgroups[e.lease.Cgroup] != id {
			c.breach("claim %q is not found by its cgroup %q", id, e.lease.Cgroup)
		}
	}
}

// checkAmounts checks what a claim has of GPUs, and adds it up.
func (c *checked) checkAmounts(e *entry) {
	id := e.claim.ID
	if err := distinct(e.claim.Placement); err != nil {
		c.breach("claim %q: %w", id, err)
	}
	if e.lease != nil {
		if err := checkPart(e.claim.Placement, e.lease.Part); err != nil {
			c.breach("claim %q: %w", id, err)
		}
		for _, f := range e.inForce() {
			c.leased[f.GPU], _ = c.leased[f.GPU].with(f) // within held
		}
	}
	for gpu, loan := range e.burst {
		f, ok := e.claim.Placement.On(gpu)
		if loan == 0 || !ok || loan > f.Burst.SubFloor(f.Memory) || e.lease == nil || len(e.lease.Part) > 0 {
			c.breach("claim %q has %s burst memory on gpu %q, and may have none", id, loan, gpu)
		}
		c.burst[gpu], _ = c.burst[gpu].Add(loan) // compared with a sum that was checked
	}
	for _, f := range e.claim.Placement {
		var err error
		if c.held[f.GPU], err = c.held[f.GPU].with(f); err != nil {
			c.breach("gpu %q: %w", f.GPU, err)
		}
		if c.gpus[f.GPU] == nil {
			c.breach("claim %q is on gpu %q, which has no page", id, f.GPU)
		}
	}
}

// checkIndexes checks that the indexes have nothing that the claims have not.
func (c *checked) checkIndexes() {
	if c.named != len(c.names) || c.leases != len(c.cgroups) {
		c.breach("%d names for %d claims, %d cgroups for %d leases", len(c.names), c.named, len(c.cgroups), c.leases)
	}
	if c.attached != len(c.containers) {
		c.breach("%d containers for %d attachments", len(c.containers), c.attached)
	}
	for _, all := range c.joined {
		c.followers -= len(all)
	}
	if c.followers != 0 {
		c.breach("%d claims more share a cap than are found", c.followers)
	}
	if !slices.IsSortedFunc(c.order, func(a, b *entry) int { return cmp.Compare(a.claim.ID, b.claim.ID) }) ||
		len(c.order) != len(c.claims) {
		c.breach("%d claims are in order, of %d", len(c.order), len(c.claims))
	}
	for i, g := range c.seen {
		if i >= len(c.order) || !reflect.DeepEqual(g, c.grant(c.order[i])) {
			c.breach("claim %q is shown as it was", g.Claim.ID)
		}
	}
}

// checkAttachments checks the attachments of one claim.
func (c *checked) checkAttachments(e *entry) {
	id := e.claim.ID
	if a := e.lease; a != nil && !a.inForce() {
		c.breach("claim %q is leased to an attachment that is %s", id, a.State)
	}
	if a := e.next; a != nil && (a.inForce() || a.State == Reserved || (a.Cgroup != "") != (a.State == Activating)) {
		c.breach("claim %q is to be used next by an attachment that is %s, of cgroup %q", id, a.State, a.Cgroup)
	}
	if e.lease != nil && e.next != nil && (e.next.State == Activating || e.next.ContainerID == e.lease.ContainerID) {
		c.breach("claim %q is used, and is to be used next, by container %q, which is %s", id, e.next.ContainerID,
			e.next.State)
	}
	for _, a := range []*Attachment{e.lease, e.next} {
		if a == nil || a.ContainerID == "" {
			continue
		}
		c.attached++
		if c.containers[a.ContainerID] != id {
			c.breach("claim %q is not found by its container %q", id, a.ContainerID)
		}
	}
}

func (g *gpu) check(id sharing.GPURef, held, leased sum, burstNow sharing.Bytes) error {
	switch {
	case g.facts.Ref() != id:
		return fmt.Errorf("ledger: gpu %q is filed under %q", g.facts.Ref(), id)
	case g.held != held || g.leased != leased:
		return fmt.Errorf("ledger: gpu %q: booked %+v and leased %+v, its claims say %+v and %+v", id, g.held, g.leased,
			held, leased)
	case g.burst != burstNow || g.overlent() != g.burstExcused:
		return fmt.Errorf("ledger: gpu %q: burst memory %s, its claims have %s, too much %v, from facts %v", id,
			g.burst, burstNow, g.overlent(), g.burstExcused)
	case g.over() != g.excused:
		return fmt.Errorf("ledger: gpu %q: overbooked %v, from facts %v: %+v on %s", id, g.over(), g.excused, held,
			g.facts.Bookable())
	case !g.present && held.claims == 0:
		return fmt.Errorf("ledger: gpu %q is gone and has a page without claims", id)
	case g.facts.Health == sharing.HealthOK && !g.present:
		return fmt.Errorf("ledger: gpu %q is gone and healthy", id)
	}
	return nil
}
