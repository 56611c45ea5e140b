// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
)

const (
	// lendEvery is how often loans are looked at even if nothing changed, and lendGap the least time between
	// two looks.
	lendEvery = time.Second
	lendGap   = 50 * time.Millisecond
	// lendDeadline bounds one look at one GPU, and what a claim waits for lent memory to be taken back: a
	// container runtime gives its plugins two seconds.
	lendDeadline = time.Second
	// wantedFor is how long after a claim did not fit for lent memory in use nothing is lent on that GPU: long
	// enough for kubelet to try again.
	wantedFor = time.Minute
)

// lendLoop keeps lending what is free to those who may burst.
func (r *Runtime) lendLoop(ctx context.Context) error {
	t := time.NewTicker(lendEvery)
	defer t.Stop()
	for {
		changed := r.changed.wait() // of before the look, so that none is missed
		r.lendAll(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		case <-changed:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lendGap):
		}
	}
}

// lendAll brings every loan to what it should be: what is free of a GPU is divided evenly among the leases that
// may burst there. A loan that has become too large shrinks by what is idle of it. Where a claim waits for what is
// lent, nothing is lent, and every loan shrinks to what is used of it.
func (r *Runtime) lendAll(ctx context.Context) {
	r.lending.Lock()
	defer r.lending.Unlock()
	changed := false
	for _, v := range r.views() {
		changed = r.lendOn(ctx, v.GPU.UUID) || changed
	}
	if changed {
		r.changed.announce()
	}
}

func (r *Runtime) views() []ledger.View {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conditions.Has(conditions.Driver) || !r.recovery.Restored {
		return nil // what is lent is not known before the caps were read back
	}
	return r.ledger.GPUs()
}

// lendOn is lendAll for one GPU. It reports whether any loan changed. The caller holds lending.
func (r *Runtime) lendOn(ctx context.Context, gpu sharing.GPUID) (changed bool) {
	r.mu.Lock()
	v, _ := r.ledger.GPU(gpu)
	loans := r.loans(gpu)
	waits := time.Now().Before(r.wanted[gpu])
	r.mu.Unlock()
	if len(loans) == 0 || v.GPU.Health != sharing.HealthOK || v.GPU.MIG {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, lendDeadline)
	defer cancel()
	free, most := v.GPU.Usable().SubFloor(v.HeldMemory), make([]sharing.Bytes, len(loans))
	others := v.LentMemory
	for i, l := range loans {
		others, most[i] = others.SubFloor(l.Lent), l.Most
	}
	if free = free.SubFloor(others); waits {
		free = 0
	}
	shares := ledger.Shares(free, most)
	for i, l := range loans {
		if l.Lent <= shares[i] {
			continue
		}
		l = r.withUse(ctx, l, gpu)
		if back := min(l.Lent-shares[i], l.Idle()); back > 0 {
			changed = r.setLoan(ctx, l.ID, gpu, l.Lent-back) == nil || changed
		}
	}
	for i, l := range loans {
		r.mu.Lock()
		v, _ = r.ledger.GPU(gpu)
		r.mu.Unlock()
		if more := min(shares[i].SubFloor(l.Lent), v.FreeMemory/sharing.MiB*sharing.MiB); more > 0 && ctx.Err() == nil {
			changed = r.setLoan(ctx, l.ID, gpu, l.Lent+more) == nil || changed
		}
	}
	return changed
}

// loans are the leases that are, or may be, lent memory of the GPU, by id. It needs the lock.
func (r *Runtime) loans(gpu sharing.GPUID) []ledger.Loan {
	var out []ledger.Loan
	for _, g := range r.ledger.Grants() {
		f, on := g.Claim.Placement.On(gpu)
		if !on || f.Burst <= f.Memory && g.Lent[gpu] == 0 || g.Work != ledger.NoWork || !r.lendable(g) {
			continue
		}
		out = append(out, ledger.Loan{ID: g.Claim.ID, Memory: f.Memory, Lent: g.Lent[gpu], Most: f.Burst.SubFloor(f.Memory)})
	}
	return out
}

// lendable reports whether the grant is in use as a whole, and held to its size in a way that can change while it
// runs: where nothing holds it, nothing can be taken back. It needs the lock.
func (r *Runtime) lendable(g ledger.Grant) bool {
	if g.Lease == nil || len(g.Lease.Part) > 0 {
		return false
	}
	p := backend.PropertiesOf(g.Claim.Backend)
	return p.Lends && (!p.Counts || r.libkerf.Whole(string(g.Claim.ID)))
}

// withUse is the loan with what is used of it.
func (r *Runtime) withUse(ctx context.Context, l ledger.Loan, gpu sharing.GPUID) ledger.Loan {
	r.mu.Lock()
	g, ok := r.ledger.Get(l.ID)
	att := r.att
	r.mu.Unlock()
	if ok && g.Lease != nil && att != nil {
		l.Used, l.Known = r.useOf(ctx, *att, g, gpu)
	}
	return l
}

// setLoan changes what a lease is lent, and its cap with it. What is lent is booked before the cap is raised, and
// free again after the lower cap was read back. On an error both are as they were.
func (r *Runtime) setLoan(ctx context.Context, id ledger.ClaimID, gpu sharing.GPUID, lent sharing.Bytes) error {
	r.mu.Lock()
	h := r.held[id]
	r.mu.Unlock()
	if h == nil {
		return sharing.ErrNotFound
	}
	h.capping.Lock()
	defer h.capping.Unlock()
	r.mu.Lock()
	g, _ := r.ledger.Get(id)
	if g.Work != ledger.NoWork || r.att == nil || !r.lendable(g) {
		r.mu.Unlock()
		return sharing.ErrUnavailable
	}
	att, had := *r.att, g.Lent[gpu]
	var err error
	if lent > had {
		err = r.ledger.Lend(id, gpu, lent)
	}
	r.mu.Unlock()
	if err == nil {
		err = r.opt.Failpoints.Eval("lend-after-book")
	}
	if err != nil {
		return err
	}
	before, _ := g.Claim.Placement.On(gpu)
	now := before
	before.Memory, now.Memory = before.Memory+had, now.Memory+lent // within its Burst, as the ledger saw to
	err = r.changeCap(ctx, att, g, sharing.Placement{before}, sharing.Placement{now})
	if err == nil {
		err = r.opt.Failpoints.Eval("lend-after-cap")
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
