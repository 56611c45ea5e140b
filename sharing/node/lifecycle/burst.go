// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
	"github.com/kerf-gpu/kerf/sharing/node/store"
)

// GPUs implements lending.Node. The burst memory is unknown before the caps were read back.
func (r *Resizer) GPUs() (gpus []ledger.View, known bool) {
	_, gpus = r.Store.View()
	return gpus, r.Recovery.Get().Restored && !r.Conditions.Has(conditions.Driver)
}

// Bursts implements lending.Node.
func (r *Resizer) Bursts(gpu sharing.GPURef) (v ledger.View, out []ledger.Burst) {
	var grants []ledger.Grant
	r.Store.Read(func(l store.Reader) {
		v, _ = l.GPU(gpu)
		grants = l.Grants()
	})
	for _, g := range grants {
		f, on := g.Placement.On(gpu)
		if !on || f.Burst <= f.Memory && g.Burst[gpu] == 0 || g.Work != ledger.NoWork || !r.lendable(g) {
			continue
		}
		out = append(out, ledger.Burst{ID: g.ID, Memory: f.Memory, Burst: g.Burst[gpu],
			MaxBurst: f.Burst.SubFloor(f.Memory)})
	}
	return v, out
}

// lendable reports whether the grant is in use as a whole, and has a cap that can change while it runs. Without such a
// cap, no memory can be taken back.
func (r *Resizer) lendable(g ledger.Grant) bool {
	if g.Active == nil || len(g.Active.Part) > 0 {
		return false
	}
	p := backend.PropertiesOf(g.Backend)
	return p.CanBurst && (!p.Counts || r.Libkerf.Whole(string(g.ID)))
}

// Usage implements lending.Node.
func (r *Resizer) Usage(ctx context.Context, id ledger.GrantID, gpu sharing.GPURef) (used sharing.Bytes, known bool) {
	g, ok := r.Store.Get(id)
	att := r.Driver.Get()
	if !ok || g.Active == nil || att == nil {
		return 0, false
	}
	return r.useOf(ctx, *att, g, gpu)
}

// SetBurst implements lending.Node. It reserves burst memory before it raises the cap, and frees it after it read back
// the lower cap.
func (r *Resizer) SetBurst(ctx context.Context, id ledger.GrantID, gpu sharing.GPURef, lent sharing.Bytes) error {
	capping := r.Handles.Capping(id)
	if capping == nil {
		return sharing.ErrNotFound
	}
	capping.Lock()
	defer capping.Unlock()
	att := r.Driver.Get()
	var g ledger.Grant
	err := r.Store.UpdateLater(func(l *ledger.Ledger) error {
		g, _ = l.Get(id)
		switch {
		case g.Work != ledger.NoWork || att == nil || !r.lendable(g):
			return sharing.ErrUnavailable
		case lent > g.Burst[gpu]:
			return l.SetBurst(id, gpu, lent)
		}
		return nil
	})
	if err == nil {
		err = r.Failpoints.Eval("lend-after-book")
	}
	if err != nil {
		return err
	}
	had := g.Burst[gpu]
	before, _ := g.Placement.On(gpu)
	now := before
	before.Memory, now.Memory = before.Memory+had, now.Memory+lent // within its Burst, as the ledger saw to
	err = r.changeCap(ctx, *att, g, sharing.Placement{before}, sharing.Placement{now})
	if err == nil {
		err = r.Failpoints.Eval("lend-after-cap")
	}
	switch {
	case err != nil && lent > had:
		lent = had
	case err != nil || lent > had:
		return err
	}
	if back := r.Store.UpdateLater(func(l *ledger.Ledger) error { return l.SetBurst(id, gpu, lent) }); err == nil {
		err = back
	}
	return err
}
