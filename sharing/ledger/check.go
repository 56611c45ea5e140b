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
	c := checked{Ledger: l, held: map[sharing.GPURef]sum{}, active: map[sharing.GPURef]sum{},
		burst: map[sharing.GPURef]sharing.Bytes{}, counted: map[companionShare]bool{}}
	for id, e := range l.grants {
		c.checkIndexed(id, e)
		c.checkAttachments(e)
		c.checkAmounts(e)
	}
	c.checkIndexes()
	for id, g := range l.gpus {
		if err := g.check(id, c.held[id], c.active[id], c.burst[id]); err != nil {
			c.errs = append(c.errs, err)
		}
	}
	return errors.Join(c.errs...)
}

// checked is what the grants say, added up.
type checked struct {
	*Ledger
	errs []error
	// held, active and burst are sums on each GPU: reserved, active, and burst memory.
	held, active map[sharing.GPURef]sum
	burst        map[sharing.GPURef]sharing.Bytes
	// named, attachments, followers, attached and ofPods count what the indexes must have.
	named, attachments, followers, attached, ofPods, companions int
	// counted has the shares of companions that were added up.
	counted map[companionShare]bool
}

// companionShare is a share that several companions have together.
type companionShare struct {
	sum, key string
	share    sharing.Share
}

// first reports whether to add up a share: it is no companion's, or no companion came before with it.
func (c *checked) first(sum string, e *entry, f sharing.Share) bool {
	id := companionShare{sum, e.grant.DevicesKey(), f}
	if id.key == "" {
		return true
	}
	was := c.counted[id]
	c.counted[id] = true
	return !was
}

func (c *checked) breach(format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf("ledger: "+format, args...))
}

// checkIndexed checks that a grant is found by what it is filed under.
func (c *checked) checkIndexed(id GrantID, e *entry) {
	if id == "" || id != e.grant.ID {
		c.breach("grant %q is filed under %q", e.grant.ID, id)
	}
	if e.grant.Name != "" {
		c.named++
		if c.names[e.grant.Name] != id {
			c.breach("grant %q is not found by its name %q", id, e.grant.Name)
		}
	}
	if e.grant.With != "" {
		c.followers++
		if e.grant.With == id || !slices.Contains(c.joined[e.grant.With], e) {
			c.breach("grant %q is not found by grant %q, whose cap it shares", id, e.grant.With)
		}
	}
	if key := e.grant.DevicesKey(); key != "" {
		c.companions++
		if !slices.Contains(c.Ledger.companions[key], e) {
			c.breach("grant %q is not found by its devices", id)
		}
	}
	if uid := e.grant.Owner.PodUID; uid != "" {
		c.ofPods++
		if !slices.Contains(c.pods[uid], e) {
			c.breach("grant %q is not found by its pod %q", id, uid)
		}
	}
	if e.active != nil {
		c.attachments++
		if e.active.Cgroup == "" || c.cgroups[e.active.Cgroup] != id {
			c.breach("grant %q is not found by its cgroup %q", id, e.active.Cgroup)
		}
	}
}

// checkAmounts checks what a grant has of GPUs, and adds it up.
func (c *checked) checkAmounts(e *entry) {
	id := e.grant.ID
	if err := distinct(e.grant.Placement); err != nil {
		c.breach("grant %q: %w", id, err)
	}
	if e.active != nil {
		if err := checkPart(e.grant.Placement, e.active.Part); err != nil {
			c.breach("grant %q: %w", id, err)
		}
		for _, f := range e.inForce() {
			if c.first("active", e, f) {
				c.active[f.GPU], _ = c.active[f.GPU].with(f) // within held
			}
		}
	}
	for gpu, loan := range e.burst {
		f, ok := e.grant.Placement.On(gpu)
		if loan == 0 || !ok || loan > f.Burst.SubFloor(f.Memory) || e.active == nil || len(e.active.Part) > 0 {
			c.breach("grant %q has %s burst memory on gpu %q, and may have none", id, loan, gpu)
		}
		c.burst[gpu], _ = c.burst[gpu].Add(loan) // compared with a sum that was checked
	}
	for _, f := range e.grant.Placement {
		if c.first("held", e, f) {
			var err error
			if c.held[f.GPU], err = c.held[f.GPU].with(f); err != nil {
				c.breach("gpu %q: %w", f.GPU, err)
			}
		}
		if c.gpus[f.GPU] == nil {
			c.breach("grant %q is on gpu %q, which has no page", id, f.GPU)
		}
	}
}

// checkIndexes checks that the indexes have nothing that the grants have not.
func (c *checked) checkIndexes() {
	if c.named != len(c.names) || c.attachments != len(c.cgroups) {
		c.breach("%d names for %d grants, %d cgroups for %d attachments", len(c.names), c.named,
			len(c.cgroups), c.attachments)
	}
	if c.attached != len(c.containers) {
		c.breach("%d containers for %d attachments", len(c.containers), c.attached)
	}
	for _, all := range c.joined {
		c.followers -= len(all)
	}
	for _, all := range c.pods {
		c.ofPods -= len(all)
	}
	for _, all := range c.Ledger.companions {
		c.companions -= len(all)
	}
	if c.companions != 0 {
		c.breach("%d companions more than are found", c.companions)
	}
	if c.ofPods != 0 {
		c.breach("%d grants of pods more than are found", c.ofPods)
	}
	if c.followers != 0 {
		c.breach("%d grants more share a cap than are found", c.followers)
	}
	if !slices.IsSortedFunc(c.order, func(a, b *entry) int { return cmp.Compare(a.grant.ID, b.grant.ID) }) ||
		len(c.order) != len(c.grants) {
		c.breach("%d grants are in order, of %d", len(c.order), len(c.grants))
	}
	for _, e := range c.order {
		if e.seen != nil && !reflect.DeepEqual(*e.seen, c.grant(e)) {
			c.breach("the copy of grant %q is not the grant", e.grant.ID)
		}
	}
	for i, g := range c.seen {
		if i >= len(c.order) || !reflect.DeepEqual(g, c.grant(c.order[i])) {
			c.breach("grant %q is shown as it was", g.ID)
		}
	}
}

// checkAttachments checks the attachments of one grant.
func (c *checked) checkAttachments(e *entry) {
	id := e.grant.ID
	if a := e.active; a != nil && !a.inForce() {
		c.breach("grant %q is in use by an attachment that is %s", id, a.State)
	}
	if a := e.next; a != nil && (a.inForce() || a.State == Reserved || (a.Cgroup != "") != (a.State == Activating)) {
		c.breach("grant %q is to be used next by an attachment that is %s, of cgroup %q", id, a.State, a.Cgroup)
	}
	if e.active != nil && e.next != nil && (e.next.State == Activating || e.next.ContainerID == e.active.ContainerID) {
		c.breach("grant %q is used, and is to be used next, by container %q, which is %s", id, e.next.ContainerID,
			e.next.State)
	}
	for _, a := range []*Attachment{e.active, e.next} {
		if a == nil || a.ContainerID == "" {
			continue
		}
		c.attached++
		if c.containers[a.ContainerID] != id {
			c.breach("grant %q is not found by its container %q", id, a.ContainerID)
		}
	}
}

func (g *gpu) check(id sharing.GPURef, held, active sum, burstNow sharing.Bytes) error {
	switch {
	case g.facts.Ref() != id:
		return fmt.Errorf("ledger: gpu %q is filed under %q", g.facts.Ref(), id)
	case g.held != held || g.active != active:
		return fmt.Errorf("ledger: gpu %q: booked %+v and active %+v, its grants say %+v and %+v", id, g.held, g.active,
			held, active)
	case g.burst != burstNow || g.overlent() != g.burstExcused:
		return fmt.Errorf("ledger: gpu %q: burst memory %s, its grants have %s, too much %v, from facts %v", id,
			g.burst, burstNow, g.overlent(), g.burstExcused)
	case g.over() != g.excused:
		return fmt.Errorf("ledger: gpu %q: overbooked %v, from facts %v: %+v on %s", id, g.over(), g.excused, held,
			g.facts.Bookable())
	case !g.present && held.grants == 0:
		return fmt.Errorf("ledger: gpu %q is gone and has a page without grants", id)
	case g.facts.Health == sharing.HealthOK && !g.present:
		return fmt.Errorf("ledger: gpu %q is gone and healthy", id)
	}
	return nil
}
