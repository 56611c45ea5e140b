// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"fmt"
	"path"

	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/audit"
	"github.com/kerf-gpu/kerf/sharing/backend/reactive"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/listing"
	"github.com/kerf-gpu/kerf/sharing/node/notify"
)

// OverCapReason of a pod: a container uses more memory than its cap, and what Kerf does about it.
const OverCapReason = "GPUMemoryOverCap"

// notifyPod notifies the pod of a grant, if it is of one.
func (g *Guard) notifyPod(ctx context.Context, gr Grant, v reactive.Verdict, done string) {
	if gr.Active != nil {
		g.opt.Notify.Pod(ctx, *gr.Grant, OverCapReason,
			fmt.Sprintf("The container used %s of GPU %s above its cap of %s: %s.", v.Used, v.GPU, v.Cap, done))
	}
}

// act carries a verdict out, and reports it.
func (g *Guard) act(ctx context.Context, v reactive.Verdict) {
	now := g.opt.View()
	gr, _ := now.grant(ledger.GrantID(v.Grant)) // a grant ends with its last process: after a kill it may be gone
	rule := now.rule(gr.Request.Profile)
	if v.Reason == reactive.OverCap && v.First {
		g.opt.Observer.OverCap(v.Delay, v.Used-v.Cap)
	}
	g.breached(v)
	switch v.Action {
	case reactive.Warn:
		g.noteViolation(gr, v, nil)
		g.opt.Log.Warn("grant exceeded its cap", "grant", v.Grant, "gpu", v.GPU.String(), "used_bytes", uint64(v.Used),
			"cap_bytes", uint64(v.Cap), "detection", v.Delay.String())
		g.notifyPod(ctx, gr, v, fmt.Sprintf("Kerf takes no action (%s)", rule))
	case reactive.Evict:
		g.evict(ctx, gr, v, rule)
	case reactive.Kill:
		g.kill(ctx, gr, v, rule)
	}
}

func (g *Guard) kill(ctx context.Context, gr Grant, v reactive.Verdict, rule string) {
	check := g.checkVictim
	if v.Reason == reactive.Unmanaged {
		check = g.checkUnmanaged
	}
	victim := victimName(v.Victim.PID) // which cannot be read any more after the kill
	// The audit log has the violation before the release of the grant, which may follow the signal at once.
	noted := false
	err := process.Kill(v.Victim.PID, v.Victim.Start, func() error {
		err := check(v)
		if noted = err == nil && g.deniedBefore[v.Victim] == ""; noted {
			g.noteViolation(gr, v, nil)
		}
		return err
	})
	g.opt.Observer.Killed(v.Reason.String(), err)
	if err != nil {
		g.core.Spare(v.Victim)
		g.spared(gr, v, err)
		return
	}
	if !noted {
		g.noteViolation(gr, v, nil)
	}
	g.opt.Log.Warn("killed process", "reason", v.Reason.String(), "pid", v.Victim.PID, "process", victim, "gpu",
		v.GPU.String(), "grant", v.Grant,
		"used_bytes", uint64(v.Used), "cap_bytes", uint64(v.Cap), "detection", v.Delay.String())
	switch v.Reason {
	case reactive.OverCap:
		which := "used the most memory"
		if v.Orphaned {
			which = "kept the memory of an ended process"
		}
		g.notifyPod(ctx, gr, v, fmt.Sprintf("Kerf killed %s, which %s (%s)", victim, which, rule))
	case reactive.Escaped:
		g.notifyPod(ctx, gr, v,
			fmt.Sprintf("Kerf killed %s, which bypassed the MPS daemon of its grant and had no cap", victim))
	case reactive.Unmanaged:
	}
}

// spared reports a process that was to be killed and lives. Most have just ended or left. If the agent may not kill
// one, that is logged once, and shown while the agent tries.
func (g *Guard) spared(gr Grant, v reactive.Verdict, err error) {
	say := g.opt.Log.Info
	if errors.Is(err, sharing.ErrDenied) {
		known := g.deniedBefore[v.Victim]
		g.denied[v.Victim] = fmt.Sprintf("process %d on GPU %s is to be killed (%s) and goes on: %v", v.Victim.PID,
			v.GPU, v.Reason, err)
		if known != "" {
			return
		}
		say = g.opt.Log.Warn
	}
	g.noteViolation(gr, v, err)
	say("skipped kill of process", "reason", v.Reason.String(), "pid", v.Victim.PID, "gpu", v.GPU.String(),
		"grant", v.Grant, "error", err.Error())
}

// checkVictim checks again, while the process is held, that it belongs to the grant that is over its cap.
func (g *Guard) checkVictim(v reactive.Verdict) error {
	now, id := g.opt.View(), ledger.GrantID(v.Grant)
	if !now.capped(id, v) {
		return fmt.Errorf("grant %q has no such cap any more: %w", v.Grant, sharing.ErrStale)
	}
	dir, err := g.opt.Cgroups.OfProcess(v.Victim.PID)
	if err != nil {
		return err
	}
	owner, ok := now.owner(id, v.GPU, dir)
	if !ok {
		return fmt.Errorf("it is in cgroup %q, which is not of grant %q: %w", dir, v.Grant, sharing.ErrStale)
	}
	if _, err := g.opt.Cgroups.Open(owner.Active.Cgroup, owner.Active.Inode); err != nil {
		return fmt.Errorf("grant %q: %w", owner.ID, err)
	}
	return g.opt.Lists.Check(v.GPU, listing.Process(v.Victim))
}

// capped reports whether a grant still has the cap of a verdict that kills.
func (v View) capped(id ledger.GrantID, of reactive.Verdict) bool {
	g, _ := v.grant(id)
	for _, c := range v.caps(g) {
		kills := c.Action == reactive.Kill || c.Action == reactive.Warn && of.Reason == reactive.Escaped
		if c.GPU == of.GPU && c.Memory == of.Cap && kills {
			return true
		}
	}
	return false
}

// checkUnmanaged checks again, while the process is held, that it has no grant and may be killed.
func (g *Guard) checkUnmanaged(v reactive.Verdict) error {
	dir, err := g.opt.Cgroups.OfProcess(v.Victim.PID)
	if err != nil {
		return err
	}
	switch now := g.opt.View(); {
	case !now.kills():
		return fmt.Errorf("unmanaged processes are not killed any more, or cannot be identified: %w", sharing.ErrStale)
	case now.granted(v.GPU, dir) || !g.opt.mayEnd(now, v.Victim.PID, dir):
		return fmt.Errorf("it is not unmanaged any more: %w", sharing.ErrStale)
	}
	return g.opt.Lists.Check(v.GPU, listing.Process(v.Victim))
}

// noteViolation writes a violation and the action to the audit log; err says why the action failed. The grant is empty
// if the process belongs to none.
func (g *Guard) noteViolation(gr Grant, v reactive.Verdict, err error) {
	e := audit.Entry{Type: audit.Violation}
	if gr.ID != "" {
		e = notify.Entry(audit.Violation, gr.Reservation)
	}
	e.Shares = []audit.Share{{GPU: v.GPU.String()}}
	e.Reason = fmt.Sprintf("%s: %s", v.Reason, actionName(v.Action))
	if v.Victim.PID != 0 {
		e.Reason += fmt.Sprintf(" (process %d)", v.Victim.PID)
	}
	if v.Used > 0 || v.Cap > 0 {
		e.Reason += fmt.Sprintf("; it held %d bytes and may %d", uint64(v.Used), uint64(v.Cap))
	}
	if err != nil {
		e.Error = err.Error()
	}
	g.opt.Notify.Audit.Write(e)
}

// victimName names a process: by the pid that it has on the node, and its program.
func victimName(pid int) string {
	program, err := process.Program(pid)
	if err != nil {
		return fmt.Sprintf("process %d of the node", pid)
	}
	return fmt.Sprintf("process %d (%s) of the node", pid, path.Base(program))
}
