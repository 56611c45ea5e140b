// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// resizing is one change of a grant's memory: from what it has to what it is to have.
type resizing struct {
	grant ledger.Grant
	h     *holding
	att   Attachment
	// from and to differ in memory alone; most has the larger amount of each fragment, and is booked while the
	// caps are changed.
	from, to, most sharing.Placement
}

// Limit changes the memory of a grant to amount, the total over its fragments, while programs may use it. Its
// share of compute stays. Root may change every grant; another user may shrink a grant of its own.
//
// The order is what a crash may interrupt anywhere. What is to grow is booked and on record before its cap is
// raised; what is to shrink is given back once its lower cap was read back. At each instant the books and the
// record have at least what is in force, so that no byte is granted twice. On an error all is as it was.
//
// Errors: ErrNotFound for an unknown grant, ErrDenied for a caller who may not, ErrUnsupported for whole GPUs, a
// *sharing.FieldError for an amount that no grant can have, ErrExhausted where the GPU has no room,
// ErrConflict for less than the grant's processes hold now, and ErrUnavailable where the driver does not answer
// or the grant is being armed or ended.
func (r *Runtime) Limit(ctx context.Context, peer Peer, id ledger.ClaimID, amount sharing.Bytes) error {
	// The caller may go away at any moment; what was begun is finished or undone all the same.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), capDeadline)
	defer cancel()
	c, err := r.beginLimit(peer, id, amount)
	if err == nil {
		err = r.resize(ctx, c)
		r.mu.Lock()
		c.h.busy = false
		r.mu.Unlock()
	}
	r.opt.Observer.Limited(err)
	if err != nil {
		r.log.Info("limit not changed", "claim", id, "pid", peer.PID, "uid", peer.UID, "asked", amount.String(), "reason", err.Error())
		return fmt.Errorf("limit grant %q: %w", id, err)
	}
	before, _ := c.from.Total()
	r.log.Info("limit changed", "claim", id, "pid", peer.PID, "uid", peer.UID, "from", before.String(), "to", amount.String())
	r.changed.announce()
	r.wake() // what was given back may be what somebody waits for
	return nil
}

// beginLimit checks what can be checked without the driver, and marks the grant busy.
func (r *Runtime) beginLimit(peer Peer, id ledger.ClaimID, amount sharing.Bytes) (c resizing, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g, ok := r.ledger.Get(id)
	h := r.held[id]
	if !ok || h == nil {
		return c, sharing.ErrNotFound
	}
	own := !g.Claim.Owner.Pod() && !g.Claim.Recovered && g.Claim.Owner.UID == peer.UID
	if peer.UID != 0 && !own {
		return c, fmt.Errorf("it is not of uid %d, who asks: %w", peer.UID, sharing.ErrDenied)
	}
	if err := r.ready(); err != nil {
		return c, err
	}
	to, err := ledger.Resized(g.Claim.Placement, amount)
	if err != nil {
		return c, err
	}
	c = resizing{grant: g, h: h, att: *r.att, from: g.Claim.Placement, to: to, most: g.Claim.Placement.Clone()}
	for i, f := range to {
		c.most[i].Memory = max(c.most[i].Memory, f.Memory)
		if peer.UID != 0 && f.Memory > c.from[i].Memory {
			return c, fmt.Errorf("only root may raise a limit: ask for a new grant instead: %w", sharing.ErrDenied)
		}
	}
	switch {
	case h.busy:
		return c, fmt.Errorf("it is being armed or ended: %w", sharing.ErrUnavailable)
	case g.Lease != nil && len(g.Lease.Part) > 0:
		return c, fmt.Errorf("init container %q uses a part of it: try again when that has ended: %w", g.Lease.Container, sharing.ErrUnavailable)
	}
	h.busy = true
	return c, nil
}

// resize does the work without the lock; the holding is busy, so nobody else changes it.
func (r *Runtime) resize(ctx context.Context, c resizing) error {
	c.h.capping.Lock()
	defer c.h.capping.Unlock()
	if err := r.setSize(c.grant.Claim.ID, c.most); err != nil {
		return err
	}
	err := r.persist()
	if err == nil {
		err = r.opt.Failpoints.Eval("limit-after-book")
	}
	if err == nil {
		err = r.moveCap(ctx, c)
	}
	if err != nil {
		return errors.Join(err, r.setSize(c.grant.Claim.ID, c.from), r.persist())
	}
	if err := r.opt.Failpoints.Eval("limit-after-cap"); err != nil {
		return err
	}
	if err := r.setSize(c.grant.Claim.ID, c.to); err != nil {
		return err
	}
	// A record that has more than is in force is what the next agent puts in force: nobody else can have taken
	// it meanwhile, since what they take is on the same record.
	if err := r.persist(); err != nil {
		return fmt.Errorf("the new limit is in force, and not on record: %w", err)
	}
	return r.opt.Failpoints.Eval("limit-after-record")
}

// setSize changes what the ledger has of the claim.
func (r *Runtime) setSize(id ledger.ClaimID, to sharing.Placement) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ledger.Resize(id, to)
}

// moveCap brings what is in force from the old amounts to the new ones, or leaves it at the old ones.
func (r *Runtime) moveCap(ctx context.Context, c resizing) error {
	if c.grant.Lease == nil {
		return nil // nothing is in force before it is armed
	}
	if c.grant.Claim.Level != sharing.LevelDriver {
		return r.fitsUse(ctx, c) // the books are what such a grant is held to
	}
	var now, before sharing.Placement
	for i, f := range c.to {
		if f.Memory != c.from[i].Memory {
			now, before = append(now, f), append(before, c.from[i])
		}
	}
	if len(r.cappable(now)) != len(now) {
		return fmt.Errorf("one of its GPUs is lost or does not answer: %w", sharing.ErrUnavailable)
	}
	err := c.att.Caps.Renew(ctx, c.grant.Lease.Cgroup, now, nil)
	// A driver may refuse a limit below the use, or take it and let the use stay.
	for i, f := range now {
		if f.Memory >= before[i].Memory {
			continue
		}
		_, used, readErr := c.att.Caps.Read(ctx, c.grant.Lease.Cgroup, f.GPU)
		switch {
		case readErr != nil && err == nil:
			err = readErr
		case readErr == nil && used > f.Memory:
			err = r.belowUse(f, used)
		}
	}
	if err == nil {
		return nil
	}
	return errors.Join(err, c.att.Caps.Renew(ctx, c.grant.Lease.Cgroup, before, nil))
}

// fitsUse refuses an amount below what the grant's processes hold, where no driver does it.
func (r *Runtime) fitsUse(ctx context.Context, c resizing) error {
	var p picture
	for i, f := range c.to {
		if f.Memory >= c.from[i].Memory {
			continue
		}
		if p.gpus == nil {
			p = r.sample(ctx)
		}
		used, known := p.used(c.grant.Claim.ID, f.GPU)
		switch {
		case !known:
			return fmt.Errorf("the driver does not tell how much its processes hold of GPU %s, so it cannot be lowered: %w", f.GPU, sharing.ErrUnavailable)
		case used > f.Memory:
			return r.belowUse(f, used)
		}
	}
	return nil
}

func (r *Runtime) belowUse(f sharing.Fragment, used sharing.Bytes) error {
	return fmt.Errorf("its processes hold %s of GPU %s, so it cannot be lowered to %s there: end some of them, or let them free memory, and try again: %w",
		used, f.GPU, f.Memory, sharing.ErrConflict)
}
