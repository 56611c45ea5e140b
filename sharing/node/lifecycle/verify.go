// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/gpudriver"
	"github.com/kerf-gpu/kerf/sharing/node/startcheck"
)

// Run reads every cap back once in about each verifyEvery, and all of them at once when a GPU or the driver came
// back.
func (r *Caps) Run(ctx context.Context) error {
	turn := startcheck.NewSchedule[ledger.GrantID](verifyEvery)
	t := time.NewTimer(turn.Pause)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.verifyNow:
			r.VerifyAll(ctx)
			turn = startcheck.NewSchedule[ledger.GrantID](verifyEvery)
		case <-t.C:
			if id, ok := turn.Next(r.Active); ok {
				r.VerifyRunning(ctx, id)
			}
		}
		t.Reset(turn.Pause)
	}
}

// VerifyAll reads back, now, the cap of every grant at level driver, and the least limit on the GPUs that no grant may
// use. It restores what is missing: a driver that was reloaded, or a GPU that came back, has forgotten them. A cap that
// cannot be restored shows as level unknown, with the reason.
func (r *Caps) VerifyAll(ctx context.Context) {
	for _, id := range r.Active() {
		if ctx.Err() != nil {
			return
		}
		r.verifyOne(ctx, id)
	}
}

// VerifyRunning verifies the caps of a grant. If a cap is missing or too high, another program changed it. The driver
// charges memory that the container took since then to no limit: the level becomes unknown. A driver or GPU that came
// back has lost its limits too, but also all memory. VerifyAll is then due, and the level stays.
func (r *Caps) VerifyRunning(ctx context.Context, id ledger.GrantID) {
	g, _ := r.Store.Get(id)
	raised := r.verifyOne(ctx, id)
	if raised == "" || g.Active == nil || r.VerifyDue() {
		return
	}
	why := fmt.Sprintf("another program raised the driver's limit (%s); Kerf set it again, and memory taken meanwhile "+
		"may not count against the cap", raised)
	if err := r.doubt(ctx, id, g.Active.ContainerID, why); err != nil && !errors.Is(err, sharing.ErrNotFound) {
		r.Log.Error("failed to record a raised cap", "grant", id, "error", err.Error())
	}
}

// verifyOne is VerifyAll for one attachment. It returns what was raised and is restored.
func (r *Caps) verifyOne(ctx context.Context, id ledger.GrantID) (raised string) {
	ctx, cancel := context.WithTimeout(ctx, CapDeadline)
	defer cancel()
	capping := r.Handles.Capping(id)
	if capping == nil {
		return ""
	}
	capping.Lock()
	defer capping.Unlock()
	att := r.Driver.Get()
	// its amounts may have changed since
	g, _ := r.Store.Get(id)
	if att == nil || att.Caps == nil || g.Active == nil || g.Work != ledger.NoWork { // who is at it sets the caps
		return ""
	}
	_, others := r.splitGPUs(g.Placement, *att)
	raised, err := r.verifyCaps(ctx, *att, g, r.limitable(others))

	_ = r.Store.UpdateLater(func(l *ledger.Ledger) error {
		now, _ := l.Get(id)
		// ended meanwhile, or is ending: its limits are not ours to judge
		if now.Active == nil || now.Work != ledger.NoWork {
			return nil
		}
		lost := ""
		if err != nil && !errors.Is(err, sharing.ErrNotFound) {
			lost = err.Error()
			r.Log.Error("failed to verify cap", "grant", id, "error", lost)
		}
		if now.Active.Unverified != lost {
			l.SetChecks(id, now.Active.ContainerID, func(c *ledger.Checks) { c.Unverified = lost })
			r.Announce()
		}
		return nil
	})
	return raised
}

// verifyCaps compares the driver's limits with the grant, and restores those that differ. It does not touch correct
// ones. GPUs that are lost or do not answer are left out, and are verified when they come back. If the loss of a
// grant's GPU is not known yet, that GPU fails alone. It returns what was raised and is restored.
func (r *Caps) verifyCaps(ctx context.Context, att gpudriver.Attached, g ledger.Grant,
	others []sharing.GPURef) (raised string, err error) {
	missing := ""
	var found []startcheck.Limit
	var own sharing.Placement
	caps := g.Caps()
	if g.SharedCap != nil {
		caps = nil // no limit of one cgroup is its cap
	}
	for _, f := range r.cappable(caps) {
		limit, _, err := att.Caps.Read(ctx, g.Active.Cgroup, f.GPU)
		ok := false
		_ = r.Store.UpdateLater(func(l *ledger.Ledger) error {
			f, ok = judgeCap(l, g, f, limit, err)
			return nil
		})
		if !ok {
			own = append(own, f)
			found = append(found, startcheck.Limit{GPU: f.GPU, Desired: f.Memory, Slack: capSlack, Have: limit,
				Err: err})
			missing = fmt.Sprintf("GPU %s: limit %d, cap %d, %v", f.GPU, uint64(limit), uint64(f.Memory), err)
		}
	}
	var rest []sharing.GPURef
	for _, id := range others {
		limit, _, err := att.Caps.Read(ctx, g.Active.Cgroup, id)
		if errors.Is(err, sharing.ErrLost) {
			continue // nothing can use it; it is looked at again when it comes back
		}
		if err != nil || limit > att.Caps.Least() {
			rest = append(rest, id)
			found = append(found, startcheck.Limit{GPU: id, Desired: att.Caps.Least(), Other: true, Have: limit,
				Err: err})
			missing = fmt.Sprintf("GPU %s, which is not part of the grant: limit %d, %v", id, uint64(limit), err)
		}
	}
	if missing == "" {
		return "", nil
	}
	r.Log.Warn("restored cap that differed from the grant", "grant", g.ID, "missing", missing)
	if err := att.Caps.Renew(ctx, g.Active.Cgroup, own, rest); err != nil {
		return "", fmt.Errorf("cap is not as granted (%s), and could not be put back: %w", missing, err)
	}
	r.Observer.CapRestored()
	return strings.Join(startcheck.Evaluate(found).Raised, ", "), nil
}

// judgeCap compares the cap that was read for a share with the expected one, and returns the cap to set if it is
// wrong. The checkpoint has no burst memory, and a restart assumes the maximum: a lower cap shows the real amount. A
// cap below the guarantee is from a change that a crash interrupted. A grant without a checkpoint may have shrunk
// since its description was written.
func judgeCap(l *ledger.Ledger, g ledger.Grant, f sharing.Share, limit sharing.Bytes,
	read error) (put sharing.Share, ok bool) {
	id, lent := g.ID, g.Burst[f.GPU]
	own := f
	own.Memory -= lent // Caps added it
	switch {
	case read != nil || limit > f.Memory:
		v, _ := l.GPU(f.GPU)
		if lent > 0 && v.BurstMemory > v.GPU.Usable().SubFloor(v.GrantedMemory) && l.SetBurst(id, f.GPU, 0) == nil {
			return own, false // it was assumed, and cannot be true
		}
		return f, false
	case f.Memory-limit <= capSlack:
		return f, true
	case lent > 0 && (limit >= own.Memory || own.Memory-limit <= capSlack):
		return f, l.SetBurst(id, f.GPU, limit.SubFloor(own.Memory)) == nil
	case g.Recovered && len(g.Active.Part) == 0 && g.SharedCap == nil:
		to := g.Placement.Clone()
		for i := range to {
			if to[i].GPU == f.GPU {
				to[i].Memory = limit
			}
		}
		return f, l.Resize(id, to) == nil && l.SetBurst(id, f.GPU, 0) == nil
	case lent > 0 && l.SetBurst(id, f.GPU, 0) == nil:
		return own, false
	}
	return f, false
}
