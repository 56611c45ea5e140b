// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"context"
	"fmt"
	"time"

	"github.com/kerf-gpu/kerf/sharing/audit"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
	"github.com/kerf-gpu/kerf/sharing/node/notify"
	"github.com/kerf-gpu/kerf/sharing/usage"
)

// judgeIdle reports grants that have been idle for too long, and evicts their pods, as the pool says.
func (m *Meter) judgeIdle(ctx context.Context, now time.Duration, p config.Idle, grants []ledger.Grant) {
	var sitters []usage.IdleCandidate
	byID := map[string]ledger.Grant{}
	for _, g := range grants {
		id, o := string(g.ID), g.Owner
		byID[id] = g
		sitters = append(sitters, usage.IdleCandidate{Grant: id, Group: o.PodUID, Namespace: o.Namespace,
			Idle: m.sums.Idle(id, now)})
	}
	policy := usage.IdlePolicy{After: p.After, Evict: p.Do == config.IdleEvict, Except: p.Except}
	acts, idle := m.idler.Step(now, policy, sitters)
	for _, a := range acts {
		g := byID[a.Grant]
		text := fmt.Sprintf("The container has used no GPU time for %s (idle.timeout: %s, action: %s).",
			a.Idle.Round(time.Second), p.After, p.Do)
		if a.First {
			m.opt.Log.Info("grant became idle", "grant", a.Grant, "pod",
				g.Owner.Namespace+"/"+g.Owner.PodName,
				"for", a.Idle.String())
			m.opt.Notify.Audit.Grant(audit.Idle, g.Reservation, 0, text, nil)
			if p.Do != config.IdleReport {
				m.opt.Notify.Pod(ctx, g, IdleReason, text)
			}
		}
		if a.Evict && m.opt.Notify.CanEvict(g) {
			m.evictions.TryGo(func() error { m.evict(ctx, g, text); return nil })
		}
	}
	m.showIdle(idle, p)
}

func (m *Meter) evict(ctx context.Context, g ledger.Grant, text string) {
	ref := notify.Ref(g)
	err := m.opt.Notify.Evict(ctx, g, idleReason)
	m.opt.Notify.Audit.Grant(audit.Idle, g.Reservation, 0, "its pod is evicted: "+text, err)
	if err != nil {
		m.opt.Log.Error("failed to evict idle pod", "pod", ref.Namespace+"/"+ref.Pod, "error", err.Error())
		return
	}
	m.opt.Log.Warn("evicted pod", "reason", idleReason, "pod", ref.Namespace+"/"+ref.Pod, "grant", string(g.ID))
}

// showIdle keeps one warning for each idle grant.
func (m *Meter) showIdle(idle []string, p config.Idle) {
	now := map[string]string{}
	for _, id := range idle {
		now[id] = fmt.Sprintf("grant %s has used no GPU time for %s or longer", id, p.After)
	}
	m.opt.Conditions.Replace(conditions.Idle, now)
}
