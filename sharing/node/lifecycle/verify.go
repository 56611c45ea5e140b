// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/gpudriver"
)

// Run reads every cap back once in about each verifyEvery, and all of them at once when a GPU or the driver came
// back.
func (r *Caps) Run(ctx context.Context) error {
	turn := newTurns()
	t := time.NewTimer(turn.pause)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.verifyNow:
			r.VerifyAll(ctx)
			turn = newTurns()
		case <-t.C:
			if id, ok := turn.next(r.Leased); ok {
				r.verifyOne(ctx, id)
			}
		}
		t.Reset(turn.pause)
	}
}

// turns spreads the leases over verifyEvery, one after the other: a node of 100 leases and 8 GPUs has 800 limits, and a
// container that starts would wait for the driver behind all of them.
type turns struct {
	left  []ledger.ClaimID // who is still to come
	pause time.Duration    // until the next
}

func newTurns() *turns { return &turns{pause: verifyEvery} }

// next is whose turn it is; false where nobody has a lease.
func (t *turns) next(leased func() []ledger.ClaimID) (ledger.ClaimID, bool) {
	if len(t.left) == 0 {
		t.left = leased()
		t.pause = verifyEvery / time.Duration(max(1, len(t.left)))
	}
	if len(t.left) == 0 {
		return "", false
	}
	id := t.left[0]
	t.left = t.left[1:]
	return id, true
}

// VerifyAll reads back, now, the cap of every lease at level driver, and the least limit on the GPUs that no lease
// may use, and puts back what is missing: a driver that was reloaded, or a GPU that came back, has forgotten
// them. What cannot be put back shows as level unknown, with the reason.
func (r *Caps) VerifyAll(ctx context.Context) {
	for _, id := range r.Leased() {
		if ctx.Err() != nil {
			return
		}
		r.verifyOne(ctx, id)
	}
}

// verifyOne is VerifyAll for one lease.
func (r *Caps) verifyOne(ctx context.Context, id ledger.ClaimID) {
	ctx, cancel := context.WithTimeout(ctx, CapDeadline)
	defer cancel()
	capping := r.Handles.Capping(id)
	if capping == nil {
		return
	}
	capping.Lock()
	defer capping.Unlock()
	att := r.Driver.Get()
	g, _ := r.Store.Get(id)                                                         // its amounts may have changed since
	if att == nil || att.Caps == nil || g.Lease == nil || g.Work != ledger.NoWork { // who is at it sets the caps
		return
	}
	_, others := r.splitGPUs(g.Claim.Placement, *att)
	err := r.verifyCaps(ctx, *att, g, r.limitable(others))

	_ = r.Store.Note(func(l *ledger.Ledger) error {
		now, _ := l.Get(id)
		if now.Lease == nil || now.Work != ledger.NoWork { // ended meanwhile, or is ending: its limits are not ours to judge
			return nil
		}
		lost := ""
		if err != nil && !errors.Is(err, sharing.ErrNotFound) {
			lost = err.Error()
			r.Log.Error("cap not verified", "claim", id, "error", lost)
		}
		if now.Lease.Unverified != lost {
			l.SetChecks(id, now.Lease.ContainerID, func(c *ledger.Checks) { c.Unverified = lost })
			r.Announce()
		}
		return nil
	})
}

// verifyCaps compares what the driver holds with what the grant says, and puts back what differs. What is as it
// should be is not touched. GPUs that are lost or do not answer are left out, and are verified when they come back;
// a grant's own one whose loss is not known yet fails alone.
func (r *Caps) verifyCaps(ctx context.Context, att gpudriver.Attached, g ledger.Grant, others []sharing.GPURef) error {
	missing := ""
	var own sharing.Placement
	caps := g.Caps()
	if g.Joint != nil {
		caps = nil // no limit of one cgroup is its cap
	}
	for _, f := range r.cappable(caps) {
		limit, _, err := att.Caps.Read(ctx, g.Lease.Cgroup, f.GPU)
		ok := false
		_ = r.Store.Note(func(l *ledger.Ledger) error {
			f, ok = judgeCap(l, g, f, limit, err)
			return nil
		})
		if !ok {
			own = append(own, f)
			missing = fmt.Sprintf("GPU %s: limit %d, cap %d, %v", f.GPU, uint64(limit), uint64(f.Memory), err)
		}
	}
	var rest []sharing.GPURef
	for _, id := range others {
		limit, _, err := att.Caps.Read(ctx, g.Lease.Cgroup, id)
		if errors.Is(err, sharing.ErrLost) {
			continue // nothing can use it; it is looked at again when it comes back
		}
		if err != nil || limit > att.Caps.Least() {
			rest = append(rest, id)
			missing = fmt.Sprintf("GPU %s, which is not part of the grant: limit %d, %v", id, uint64(limit), err)
		}
	}
	if missing == "" {
		return nil
	}
	r.Log.Warn("cap is not as granted and is put back", "claim", g.Claim.ID, "missing", missing)
	if err := att.Caps.Renew(ctx, g.Lease.Cgroup, own, rest); err != nil {
		return fmt.Errorf("cap is not as granted (%s), and could not be put back: %w", missing, err)
	}
	r.Observer.CapRestored()
	return nil
}

// judgeCap says whether the cap that was read for a fragment is as it should be, and else what to put in force.
// What a lease is lent is not on record, and after a restart only assumed: a cap that is lower tells what it is. One
// that is below the guarantee is of a change that a crash cut off; and a grant whose record was lost may have been
// made smaller since what it was found by was written.
func judgeCap(l *ledger.Ledger, g ledger.Grant, f sharing.Fragment, limit sharing.Bytes, read error) (put sharing.Fragment, ok bool) {
	id, lent := g.Claim.ID, g.Lent[f.GPU]
	own := f
	own.Memory -= lent // Caps added it
	switch {
	case read != nil || limit > f.Memory:
		v, _ := l.GPU(f.GPU)
		if lent > 0 && v.LentMemory > v.GPU.Usable().SubFloor(v.HeldMemory) && l.Lend(id, f.GPU, 0) == nil {
			return own, false // it was assumed, and cannot be true
		}
		return f, false
	case f.Memory-limit <= capSlack:
		return f, true
	case lent > 0 && (limit >= own.Memory || own.Memory-limit <= capSlack):
		return f, l.Lend(id, f.GPU, limit.SubFloor(own.Memory)) == nil
	case g.Claim.Recovered && len(g.Lease.Part) == 0 && g.Joint == nil:
		to := g.Claim.Placement.Clone()
		for i := range to {
			if to[i].GPU == f.GPU {
				to[i].Memory = limit
			}
		}
		return f, l.Resize(id, to) == nil && l.Lend(id, f.GPU, 0) == nil
	case lent > 0 && l.Lend(id, f.GPU, 0) == nil:
		return own, false
	}
	return f, false
}
