// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"fmt"
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// activating reports whether the grant is being activated.
func (c *naiveGrant) activating() bool { return c.next != nil && c.next.State == ledger.Activating }

// userOf is the grant that a container uses or is to use; nil for none.
func (n *naive) userOf(containerID string) *naiveGrant {
	for i, c := range n.grants {
		for _, a := range []*ledger.Attachment{c.active, c.next} {
			if a != nil && containerID != "" && a.ContainerID == containerID {
				return &n.grants[i]
			}
		}
	}
	return nil
}

// cgroupFree reports whether no attachment has the cgroup.
func (n *naive) cgroupFree(dir string) bool {
	return !slices.ContainsFunc(n.grants, func(c naiveGrant) bool { return c.active != nil && c.active.Cgroup == dir })
}

// mayRun reports whether the cap of the attachment fits on its GPUs now.
func (n *naive) mayRun(c *naiveGrant, a *ledger.Attachment) bool {
	for _, f := range naiveInForce(c.c.Placement, a) {
		if g, known := n.gpu(f.GPU); !known || g.Health != sharing.HealthOK || !n.room(g, f, true) {
			return false
		}
	}
	return true
}

// activateNew takes a new attachment through all its states.
func (p *player) activateNew() string {
	id, c := p.pick()
	a := p.newAttachment(id)
	within := true
	if c != nil {
		a.Part, within = p.part(c.c.Placement)
	}
	if len(a.Part) > 0 || p.rnd.IntN(2) == 0 {
		a.ContainerID = fmt.Sprint("k", p.next)
	}
	if other, active := p.anyAttachment(); active && p.rnd.IntN(10) == 0 {
		a.Cgroup, a.Inode = other.Cgroup, other.Inode
	}
	assigned := c != nil && within && !c.activating()
	ok := assigned && c.active == nil && p.n.cgroupFree(a.Cgroup) && (a.ContainerID != "" || c.next == nil) &&
		p.n.mayRun(c, &a)
	err := ledger.ActivateNow(p.l, id, a)
	p.expect(err, ok, fmt.Sprintf("activate %s with %+v", id, a))
	switch {
	case err == nil:
		a.State = ledger.Active
		c.active = &a
		c.next = nil
	case assigned && a.ContainerID != "":
		a.State, a.Cgroup, a.Inode = ledger.Injected, "", 0
		c.next = &a
	}
	if err != nil {
		return "not activated"
	}
	if len(a.Part) > 0 {
		return "activated in part"
	}
	return "activated"
}

// attach does one step of the life of an attachment, now and then one that is not allowed.
func (p *player) attach() string {
	switch p.rnd.IntN(9) {
	case 0, 1:
		return p.assign()
	case 2:
		return p.created()
	case 3, 4:
		return p.activate()
	case 5, 6:
		return p.finish()
	case 7:
		return p.unassign()
	}
	return p.mark()
}

func (p *player) assign() string {
	id, c := p.pick()
	p.next++
	a := ledger.Attachment{ContainerID: fmt.Sprint("k", p.next-p.rnd.IntN(3)*p.rnd.IntN(20)),
		State: ledger.State(p.rnd.IntN(4))}
	within := true
	if c != nil {
		a.Part, within = p.part(c.c.Placement)
	}
	user := p.n.userOf(a.ContainerID)
	taken := user != nil && (user != c || c.active != nil && c.active.ContainerID == a.ContainerID)
	ok := c != nil && within && !taken && !c.activating()
	p.expect(p.l.Assign(id, a), ok, fmt.Sprintf("assign %s to %+v", id, a))
	if !ok {
		return "not assigned"
	}
	if a.State != ledger.Injected {
		a.State = ledger.Assigned
	}
	c.next = &a
	return "assigned"
}

func (p *player) created() string {
	_, c := p.pick()
	injected := p.rnd.IntN(3) > 0
	if c == nil || c.next == nil {
		p.l.Created("no-one", injected)
		return "not created"
	}
	p.l.Created(c.next.ContainerID, injected)
	switch {
	case c.next.State != ledger.Assigned || c.next.ContainerID == "":
		return "not created"
	case injected:
		c.next.State = ledger.Injected
		return "injected"
	}
	c.next.State = ledger.Rejected
	return "not injected"
}

func (p *player) activate() string {
	id, c := p.pick()
	a, containerID := p.newAttachment(id), ""
	if c != nil && c.next != nil && p.rnd.IntN(10) > 0 {
		containerID = c.next.ContainerID
	}
	ok := c != nil && c.active == nil && (containerID == "" && c.next == nil || containerID != "" &&
		c.next.State == ledger.Injected)
	p.expect(p.l.Activate(id, containerID, a.Cgroup, a.Inode), ok, fmt.Sprintf("activate %s for %q", id, containerID))
	if !ok {
		return "not activating"
	}
	if c.next != nil {
		a.ContainerID, a.Part = containerID, c.next.Part
	}
	a.State = ledger.Activating
	c.next = &a
	return "activating"
}

// finish ends an activation well or not.
func (p *player) finish() string {
	id, c := p.pick()
	if p.rnd.IntN(3) == 0 {
		p.l.Fail(id)
		if c == nil || !c.activating() {
			return "not failed"
		}
		if c.next.ContainerID == "" {
			c.next = nil
			return "failed"
		}
		c.next.State, c.next.Cgroup, c.next.Inode = ledger.Injected, "", 0
		return "failed"
	}
	ok := c != nil && c.activating() && p.n.mayRun(c, c.next)
	p.expect(p.l.Activated(id), ok, "activate "+string(id))
	if !ok {
		return "not activated"
	}
	c.next.State = ledger.Active
	c.active, c.next = c.next, nil
	return "activated late"
}

func (p *player) unassign() string {
	id, c := p.pick()
	p.expect(p.l.Unassign(id), c == nil || !c.activating(), "unassign "+string(id))
	if c == nil || c.next == nil || c.activating() {
		return "not unassigned"
	}
	c.next = nil
	return "unassigned"
}

// mark changes what hinders no transition.
func (p *player) mark() string {
	id, c := p.pick()
	work, why, empty := ledger.Work(p.rnd.IntN(4)), ledger.Withdrawal(p.rnd.IntN(3)), p.rnd.IntN(2) == 0
	switch p.rnd.IntN(5) {
	case 0:
		p.l.Withdraw(id, why)
		if c != nil && c.withdrawn == ledger.NotWithdrawn {
			c.withdrawn = why
		}
	case 1:
		p.l.CancelWithdrawal(id, why)
		if c != nil && c.withdrawn == why {
			c.withdrawn = ledger.NotWithdrawn
		}
	case 2:
		p.l.Drained(id, empty)
		if c != nil && c.active != nil {
			if c.active.State = ledger.Active; empty {
				c.active.State = ledger.Releasing
			}
		}
	case 3:
		p.expect(p.l.Begin(id, work), c != nil && c.work == ledger.NoWork, "begin work on "+string(id))
		if c != nil && c.work == ledger.NoWork {
			c.work = work
		}
	case 4:
		p.l.Done(id)
		if c != nil {
			c.work = ledger.NoWork
		}
	}
	return "marked"
}

// sameAttachment compares what the model knows.
func sameAttachment(a, b *ledger.Attachment) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.State == b.State && a.ContainerID == b.ContainerID && a.Cgroup == b.Cgroup && a.Inode == b.Inode &&
		slices.Equal(a.Part, b.Part)
}

// compareLife looks for a difference in the states of one grant.
func compareLife(got ledger.Grant, want naiveGrant) error {
	state := ledger.Reserved
	switch {
	case want.active != nil:
		state = ledger.Active
	case want.withdrawn != ledger.NotWithdrawn:
		state = ledger.Releasing
	}
	if !sameAttachment(got.Active, want.active) || !sameAttachment(got.Next, want.next) {
		return fmt.Errorf("grant %q: attachments %+v and %+v, want %+v and %+v", want.c.ID, got.Active, got.Next,
			want.active, want.next)
	}
	if got.State() != state || got.Work != want.work || got.Withdrawn != want.withdrawn {
		return fmt.Errorf("grant %q is %s, work %d, withdrawn %d; want %s, %d, %d", want.c.ID, got.State(), got.Work,
			got.Withdrawn, state, want.work, want.withdrawn)
	}
	return nil
}
