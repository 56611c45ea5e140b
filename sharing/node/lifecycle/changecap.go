// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"fmt"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/listing"
	"github.com/kerf-gpu/kerf/sharing/node/gpudriver"
	"github.com/kerf-gpu/kerf/sharing/node/store"
)

// changeCap changes an active attachment from the caps before to the new ones on the same GPUs, or leaves it at before.
// It never leaves a cap below the usage, and releases no memory that may be in use. If usage is unknown, it rejects a
// lower cap. The caller has the lock of the caps, and updates the ledger.
func (r *Resizer) changeCap(ctx context.Context, att gpudriver.Attached, g ledger.Grant, before,
	now sharing.Placement) error {
	if len(now) == 0 {
		return nil
	}
	err := r.putCap(ctx, att, g, now)
	// A limit below the use may be refused, or taken while the use stays: only the use tells.
	if below := r.lowerable(ctx, att, g, before, now); err == nil || errors.Is(below, sharing.ErrConflict) {
		err = below
	}
	if err == nil {
		return nil
	}
	return errors.Join(err, r.putCap(ctx, att, g, before))
}

// putCap sets caps on an active attachment, by its backend. Under the reactive backend alone the ledger is the cap, and
// there is nothing to set.
func (r *Resizer) putCap(ctx context.Context, att gpudriver.Attached, g ledger.Grant, p sharing.Placement) error {
	b, of := r.Enforcer(g, &att)
	return b.Resize(ctx, of, p)
}

// lowerable rejects amounts below the usage: ErrConflict with the numbers, ErrUnavailable if the usage is unknown.
func (r *Resizer) lowerable(ctx context.Context, att gpudriver.Attached, g ledger.Grant, before,
	now sharing.Placement) error {
	_, of := r.Enforcer(g, &att)
	for i, f := range now {
		if f.Memory >= before[i].Memory {
			continue
		}
		if err := r.lowerableMPS(ctx, att, g, of, f); err != nil {
			return err
		}
		used, known := r.useOf(ctx, att, g, f.GPU)
		switch {
		case !known:
			return fmt.Errorf(
				"the driver does not tell how much its processes hold of GPU %s, so it cannot be lowered: %w", f.GPU,
				sharing.ErrUnavailable)
		case used > f.Memory:
			return fmt.Errorf("its processes hold %s of GPU %s, so it cannot be lowered to %s there: end some of "+
				"them, or let them free memory, and try again: %w",
				used, f.GPU, f.Memory, sharing.ErrConflict)
		}
	}
	return nil
}

// useOf is the present usage of one GPU by a grant and those that share its cap. If the driver enforces a limit, it is
// the driver's count, else the sum over its processes, also ended ones. If either is incomplete, known is false.
func (r *Resizer) useOf(ctx context.Context, att gpudriver.Attached, g ledger.Grant,
	gpu sharing.GPURef) (used sharing.Bytes, known bool) {
	b, of := r.Enforcer(g, &att)
	if g.Level == sharing.LevelDriver {
		counts, err := b.Read(ctx, of, gpu)
		return counts.Used, err == nil
	}
	if _, ok := r.Store.Get(g.ID); !ok {
		return 0, false
	}
	answers := r.Lists.QueryAll(ctx, att.Driver, []sharing.GPURef{gpu}, listDeadline)
	var grants []ledger.Grant
	var sharers []listing.Owner
	r.Store.Read(func(l store.Reader) {
		grants = l.Grants()
		for _, id := range l.SharedCapGrants(g.ID) {
			sharers = append(sharers, listing.Owner(id))
		}
	})
	charge := r.Lists.Attribute(answers, r.Owners(grants))[0].Charge(sharers...)
	used, known = charge.Bytes, charge.Known
	if counts, err := b.Read(ctx, of, gpu); known && !errors.Is(err, sharing.ErrNotFound) {
		used, known = max(used, counts.Used), err == nil // what is reserved is on its way to be used
	}
	return used, known
}
