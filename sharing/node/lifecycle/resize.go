// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"fmt"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/gpudriver"
	"github.com/kerf-gpu/kerf/sharing/node/store"
)

// resizing is one change of a grant's memory: from what it has to what it is to have.
type resizing struct {
	grant ledger.Grant
	att   gpudriver.Attached
	// from and to differ in memory alone. most has the larger amount of each share, and is reserved while the caps
	// change.
	from, to, most sharing.Placement
}

// Limit changes the memory of a grant to amount, the total over its shares, while programs may use it. Its compute
// percent stays. Root may change every grant; another user may only shrink grants that belong to that user.
//
// A crash may interrupt the steps at any point. Growth is reserved and in the checkpoint before the cap is raised.
// Shrinking releases memory after the lower cap was read back. So ledger and checkpoint always have at least what is
// enforced, and no byte is granted twice. An error restores the previous state.
//
// ErrNotFound: an unknown grant. ErrDenied: the caller may not change it. ErrUnsupported: a whole GPU.
// *sharing.FieldError: an amount that no grant can have. ErrExhausted: not enough free memory. ErrConflict: less than
// the grant uses now. ErrUnavailable: the driver does not answer, or the grant is activating or ending.
func (r *Resizer) Limit(ctx context.Context, peer Peer, id ledger.GrantID, amount sharing.Bytes) error {
	// The caller may go away at any moment; what was begun is finished or undone all the same.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), CapDeadline)
	defer cancel()
	var c resizing
	err := r.Store.UpdateLater(func(l *ledger.Ledger) (err error) {
		c, err = r.beginLimit(l, peer, id, amount)
		return err
	})
	if err == nil {
		err = r.resize(ctx, c)
		_ = r.Store.UpdateLater(func(l *ledger.Ledger) error { l.Done(id); return nil })
	}
	r.Observer.Limited(err)
	r.Notify.Audit.Limit(int(peer.UID), id, amount, c.grant.Reservation, err)
	if err != nil {
		r.Log.Info("failed to resize grant", "grant", id, "pid", peer.PID, "uid", peer.UID, "requested",
			amount.String(),
			"reason", err.Error())
		return fmt.Errorf("limit grant %q: %w", id, err)
	}
	before, _ := c.from.Total()
	r.Log.Info("resized grant", "grant", id, "pid", peer.PID, "uid", peer.UID, "from", before.String(), "to",
		amount.String())
	r.Announce()
	r.Wake() // a pending request may need what was released
	return nil
}

// beginLimit checks what can be checked without the driver, and begins.
func (r *Resizer) beginLimit(l *ledger.Ledger, peer Peer, id ledger.GrantID, amount sharing.Bytes) (c resizing,
	err error) {
	g, ok := l.Get(id)
	if !ok {
		return c, sharing.ErrNotFound
	}
	own := !g.Owner.Pod() && !g.Recovered && g.Owner.UID == peer.UID
	if peer.UID != 0 && !own {
		return c, fmt.Errorf("it is not of uid %d, who requests it: %w", peer.UID, sharing.ErrDenied)
	}
	if err := r.Ready(); err != nil {
		return c, err
	}
	to, err := ledger.Resized(g.Placement, amount)
	if err != nil {
		return c, err
	}
	c = resizing{grant: g, att: *r.Driver.Get(), from: g.Placement, to: to, most: g.Placement.Clone()}
	for i, f := range to {
		c.most[i].Memory = max(c.most[i].Memory, f.Memory)
		if peer.UID != 0 && f.Memory > c.from[i].Memory {
			return c, fmt.Errorf("only root may raise a limit: request a new grant instead: %w", sharing.ErrDenied)
		}
	}
	switch {
	case SharedCapBusy(l, id):
		return c, fmt.Errorf("it is being activated or ended: %w", sharing.ErrUnavailable)
	case g.Active != nil && len(g.Active.Part) > 0:
		return c, fmt.Errorf("init container %q uses a part of it: try again when that has ended: %w",
			g.Active.Container, sharing.ErrUnavailable)
	}
	return c, l.Begin(id, ledger.Resizing)
}

// resize does the work without the lock. No other call works on the grant meanwhile.
func (r *Resizer) resize(ctx context.Context, c resizing) error {
	if err := r.growInto(ctx, c); err != nil {
		return err
	}
	if capping := r.Handles.Capping(c.grant.ID); capping != nil {
		capping.Lock()
		defer capping.Unlock()
	}
	err := r.Store.Save()
	if err == nil {
		err = r.Failpoints.Eval("limit-after-book")
	}
	if err == nil {
		err = r.moveCap(ctx, c)
	}
	if err != nil {
		return errors.Join(err, r.unsize(c), r.Store.Save())
	}
	if err := r.Failpoints.Eval("limit-after-cap"); err != nil {
		return err
	}
	if err := r.setSize(c.grant.ID, c.to); err != nil {
		return err
	}
	r.noteStart(c)
	// If the checkpoint has more than is enforced, the next agent enforces that. No other grant can have taken it,
	// since all grants are in the same checkpoint.
	if err := r.Store.Save(); err != nil {
		return fmt.Errorf("the new cap is set, but not in the checkpoint: %w", err)
	}
	return r.Failpoints.Eval("limit-after-record")
}

// growInto reserves the growth, and takes back burst memory if necessary.
func (r *Resizer) growInto(ctx context.Context, c resizing) error {
	err := r.setSize(c.grant.ID, c.most)
	if !errors.Is(err, sharing.ErrExhausted) {
		return err
	}
	missing := func() map[sharing.GPURef]sharing.Bytes {
		out := map[sharing.GPURef]sharing.Bytes{}
		r.Store.Read(func(l store.Reader) {
			for i, f := range c.most {
				v, _ := l.GPU(f.GPU)
				out[f.GPU] = (f.Memory - c.from[i].Memory).SubFloor(v.FreeMemory).SubFloor(c.grant.Burst[f.GPU])
			}
		})
		return out
	}
	return r.Recaller.Recall(ctx, missing, func() error { return r.setSize(c.grant.ID, c.most) })
}

// setSize changes what the ledger has of the grant.
func (r *Resizer) setSize(id ledger.GrantID, to sharing.Placement) error {
	return r.Store.UpdateLater(func(l *ledger.Ledger) error { return l.Resize(id, to) })
}

// unsize restores the ledger's amounts, with the burst memory of the attachment.
func (r *Resizer) unsize(c resizing) error {
	id := c.grant.ID
	return r.Store.UpdateLater(func(l *ledger.Ledger) error {
		err := l.Resize(id, c.from)
		for gpu, lent := range c.grant.Burst {
			err = errors.Join(err, l.SetBurst(id, gpu, lent)) // it was part of what is free now
		}
		return err
	})
}

// moveCap changes the enforced caps from the old amounts to the new ones, or leaves the old ones.
func (r *Resizer) moveCap(ctx context.Context, c resizing) error {
	g, _ := r.Store.Get(c.grant.ID) // it may have grown into burst memory that it already used
	if _, of := r.Enforcer(g, &c.att); !of.Active {
		return nil // no cap is enforced before activation
	}
	var before, now sharing.Placement
	for i, f := range c.to {
		old := c.from[i]
		old.Memory += c.grant.Burst[f.GPU] // within its Burst, as the ledger saw to
		f.Memory += g.Burst[f.GPU]
		if all, shared := g.SharedCap.On(f.GPU); shared { // which has the most of this one
			others := all.Memory.SubFloor(c.most[i].Memory)
			old.Memory, f.Memory = old.Memory+others, f.Memory+others // no more than is booked together
		}
		if f.Memory != old.Memory {
			before, now = append(before, old), append(now, f)
		}
	}
	return r.changeCap(ctx, c.att, g, before, now)
}
