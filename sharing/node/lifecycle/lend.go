// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
)

// GPUs implements lending.Node. What is lent is not known before the caps were read back.
func (r *Resizer) GPUs() (gpus []ledger.View, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ledger.GPUs(), r.Recovery.Restored && !r.Conditions.Has(conditions.Driver)
}

// Loans implements lending.Node.
func (r *Resizer) Loans(gpu sharing.GPUID) (ledger.View, []ledger.Loan) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, _ := r.ledger.GPU(gpu)
	var out []ledger.Loan
	for _, g := range r.ledger.Grants() {
		f, on := g.Claim.Placement.On(gpu)
		if !on || f.Burst <= f.Memory && g.Lent[gpu] == 0 || g.Work != ledger.NoWork || !r.lendable(g) {
			continue
		}
		out = append(out, ledger.Loan{ID: g.Claim.ID, Memory: f.Memory, Lent: g.Lent[gpu], Most: f.Burst.SubFloor(f.Memory)})
	}
	return v, out
}

// lendable reports whether the grant is in use as a whole, and held to its size in a way that can change while it
// runs: where nothing holds it, nothing can be taken back. It needs the lock.
func (r *Resizer) lendable(g ledger.Grant) bool {
	if g.Lease == nil || len(g.Lease.Part) > 0 {
		return false
	}
	p := backend.PropertiesOf(g.Claim.Backend)
	return p.Lends && (!p.Counts || r.Libkerf.Whole(string(g.Claim.ID)))
}

// Usage implements lending.Node.
func (r *Resizer) Usage(ctx context.Context, id ledger.ClaimID, gpu sharing.GPUID) (used sharing.Bytes, known bool) {
	r.mu.Lock()
	g, ok := r.ledger.Get(id)
	att := r.Driver.Get()
	r.mu.Unlock()
	if !ok || g.Lease == nil || att == nil {
		return 0, false
	}
	return r.useOf(ctx, *att, g, gpu)
}

// Lend implements lending.Node. It books what is lent before it raises the cap, and frees it after it read the lower cap back.
func (r *Resizer) Lend(ctx context.Context, id ledger.ClaimID, gpu sharing.GPUID, lent sharing.Bytes) error {
	capping := r.Handles.Capping(id)
	if capping == nil {
		return sharing.ErrNotFound
	}
	capping.Lock()
	defer capping.Unlock()
	r.mu.Lock()
	g, _ := r.ledger.Get(id)
	if g.Work != ledger.NoWork || r.Driver.Get() == nil || !r.lendable(g) {
		r.mu.Unlock()
		return sharing.ErrUnavailable
	}
	att, had := *r.Driver.Get(), g.Lent[gpu]
	var err error
	if lent > had {
		err = r.ledger.Lend(id, gpu, lent)
	}
	r.mu.Unlock()
	if err == nil {
		err = r.Failpoints.Eval("lend-after-book")
	}
	if err != nil {
		return err
	}
	before, _ := g.Claim.Placement.On(gpu)
	now := before
	before.Memory, now.Memory = before.Memory+had, now.Memory+lent // within its Burst, as the ledger saw to
	err = r.changeCap(ctx, att, g, sharing.Placement{before}, sharing.Placement{now})
	if err == nil {
		err = r.Failpoints.Eval("lend-after-cap")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil && lent > had:
		lent = had
	case err != nil || lent > had:
		return err
	}
	if back := r.ledger.Lend(id, gpu, lent); err == nil {
		err = back
	}
	return err
}
