// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/audit"
	"github.com/kerf-gpu/kerf/sharing/backend/reactive"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/listing"
	"github.com/kerf-gpu/kerf/sharing/node/notify"
)

// OverGrantReason of a pod: a container holds more than its grant, and what is done about it.
const OverGrantReason = "GPUMemoryOverGrant"

// tellPodOf tells whose container the grant is, where it is a pod's.
func (g *guard) tellPodOf(ctx context.Context, gr ledger.Grant, v reactive.Verdict, done string) {
	if gr.Lease != nil {
		g.r.notify.Pod(ctx, gr, OverGrantReason, fmt.Sprintf("its processes held %s of GPU %s, and its grant is %s: %s", v.Held, v.GPU, v.Cap, done))
	}
}

// act carries a verdict out, and tells it.
func (g *guard) act(ctx context.Context, v reactive.Verdict) {
	gr, _ := g.grantOf(v.Lease) // the grant ends with its last process: after a kill it may be gone
	if v.Reason == reactive.OverCap && v.First {
		g.r.opt.Observer.OverCap(v.Delay, v.Held-v.Cap)
	}
	g.noteBreach(v)
	if v.Action == reactive.Warn {
		g.noteViolation(gr, v, nil)
		g.r.log.Warn("grant is over its cap", "claim", v.Lease, "gpu", string(v.GPU), "holds_bytes", uint64(v.Held), "cap_bytes", uint64(v.Cap), "for_at_most", v.Delay.String())
		g.tellPodOf(ctx, gr, v, fmt.Sprintf("nothing is done about it (%s)", g.ruleOf(v)))
		return
	}
	if v.Action == reactive.Evict {
		g.evict(ctx, gr, v)
		return
	}
	check := func() error { return g.checkVictim(v) }
	if v.Reason == reactive.Stranger {
		check = func() error { return g.checkStranger(v) }
	}
	victim := victimName(v.Victim.PID) // which cannot be read any more once it was killed
	err := process.Kill(v.Victim.PID, v.Victim.Start, check)
	g.r.opt.Observer.Killed(v.Reason.String(), err)
	if err != nil {
		g.core.Spare(v.Victim)
		g.spared(gr, v, err)
		return
	}
	g.noteViolation(gr, v, nil)
	g.r.log.Warn("process killed", "reason", v.Reason.String(), "pid", v.Victim.PID, "process", victim, "gpu", string(v.GPU), "claim", v.Lease,
		"holds_bytes", uint64(v.Held), "cap_bytes", uint64(v.Cap), "for_at_most", v.Delay.String())
	switch v.Reason {
	case reactive.OverCap:
		which := "held the most"
		if v.Keeps {
			which = "kept the memory of a process that has ended"
		}
		g.tellPodOf(ctx, gr, v, fmt.Sprintf("%s, which %s, was killed (%s)", victim, which, g.ruleOf(v)))
	case reactive.Escaped:
		g.tellPodOf(ctx, gr, v, victim+" did not use the MPS daemon of its grant, so that nothing limited it, and was killed (whatever overCap says)")
	case reactive.Stranger:
	}
}

// spared tells of a process that was to be killed and lives. Mostly it has just ended or left, which is as good. One that the
// agent may not kill goes on until somebody gives it the right: that is told once, and shown for as long as it is tried.
func (g *guard) spared(gr ledger.Grant, v reactive.Verdict, err error) {
	say := g.r.log.Info
	if errors.Is(err, sharing.ErrDenied) {
		known := g.deniedBefore[v.Victim]
		g.denied[v.Victim] = fmt.Sprintf("process %d on GPU %s is to be killed (%s) and goes on: %v", v.Victim.PID, v.GPU, v.Reason, err)
		if known != "" {
			return
		}
		say = g.r.log.Warn
	}
	g.noteViolation(gr, v, err)
	say("process not killed after all", "reason", v.Reason.String(), "pid", v.Victim.PID, "gpu", string(v.GPU), "claim", v.Lease, "error", err.Error())
}

func (g *guard) grantOf(id reactive.LeaseID) (ledger.Grant, bool) {
	g.r.mu.Lock()
	defer g.r.mu.Unlock()
	return g.r.ledger.Get(ledger.ClaimID(id))
}

// checkVictim looks again, while the process is held, whether it is in the cgroup of the lease that is over
// its cap, and whether that is still the lease's.
func (g *guard) checkVictim(v reactive.Verdict) error {
	gr, ok := g.grantOf(v.Lease)
	g.r.mu.Lock()
	capped := ok && slices.ContainsFunc(g.capsOf(gr), func(c reactive.Cap) bool {
		return c.GPU == v.GPU && c.Memory == v.Cap && (c.Action == reactive.Kill || c.Action == reactive.Warn && v.Reason == reactive.Escaped)
	})
	g.r.mu.Unlock()
	if !capped {
		return fmt.Errorf("grant %q has no such cap any more: %w", v.Lease, sharing.ErrStale)
	}
	dir, err := g.r.opt.Cgroups.OfProcess(v.Victim.PID)
	if err != nil {
		return err
	}
	g.r.mu.Lock()
	all := g.r.sharersOf(gr.Claim.ID)
	g.r.mu.Unlock()
	i := slices.IndexFunc(all, func(o ledger.Grant) bool { return leaseHas(o, v.GPU, dir) })
	if i < 0 {
		return fmt.Errorf("it is in cgroup %q, which is not of grant %q: %w", dir, v.Lease, sharing.ErrStale)
	}
	if _, err := g.r.opt.Cgroups.Open(all[i].Lease.Cgroup, all[i].Lease.Inode); err != nil {
		return fmt.Errorf("grant %q: %w", all[i].Claim.ID, err)
	}
	return g.r.lists.Check(v.GPU, listing.Process(v.Victim))
}

// checkStranger looks again, while the process is held, whether it has no lease and may be ended.
func (g *guard) checkStranger(v reactive.Verdict) error {
	dir, err := g.r.opt.Cgroups.OfProcess(v.Victim.PID)
	if err != nil {
		return err
	}
	g.r.mu.Lock()
	wanted := g.r.pool.Strangers == config.StrangersKill && g.r.sure()
	grants := g.r.ledger.Grants()
	g.r.mu.Unlock()
	switch {
	case !wanted:
		return fmt.Errorf("strangers are not killed any more, or it is not sure who is one: %w", sharing.ErrStale)
	case leasedOn(grants, v.GPU, dir) || !g.r.mayEnd(v.Victim.PID, dir):
		return fmt.Errorf("it is no stranger any more: %w", sharing.ErrStale)
	}
	return g.r.lists.Check(v.GPU, listing.Process(v.Victim))
}

// noteViolation writes what somebody did and what was done about it; err says that it was not. The grant is empty if the
// process belongs to none.
func (g *guard) noteViolation(gr ledger.Grant, v reactive.Verdict, err error) {
	e := audit.Entry{What: audit.Violation}
	if gr.Claim.ID != "" {
		e = notify.Entry(audit.Violation, gr.Claim)
	}
	e.Fragments = []audit.Fragment{{GPU: string(v.GPU)}}
	e.Why = fmt.Sprintf("%s: %s", v.Reason, actionName(v.Action))
	if v.Victim.PID != 0 {
		e.Why += fmt.Sprintf(" (process %d)", v.Victim.PID)
	}
	if v.Held > 0 || v.Cap > 0 {
		e.Why += fmt.Sprintf("; it held %d bytes and may %d", uint64(v.Held), uint64(v.Cap))
	}
	if err != nil {
		e.Error = err.Error()
	}
	g.r.notify.Audit.Note(e)
}
