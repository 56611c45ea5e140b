// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/audit"
	"github.com/kerf-gpu/kerf/sharing/backend/reactive"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// note writes an entry to the audit log, where there is one. It may be called with the lock held.
func (r *Runtime) note(e audit.Entry) {
	if r.opt.Audit != nil {
		e.Time = time.Now()
		r.opt.Audit(e)
	}
}

// noteClaim writes what happened to a claim. backend may be what is not known: 0.
func (r *Runtime) noteClaim(what string, c ledger.Claim, backend config.Backend, why string, err error) {
	if r.opt.Audit == nil {
		return
	}
	e := claimEntry(what, c)
	e.Why = why
	if backend != 0 {
		e.Backend = backend.String()
	}
	if err != nil {
		e.Error = err.Error()
	}
	r.note(e)
}

func claimEntry(what string, c ledger.Claim) audit.Entry {
	o := c.Owner
	e := audit.Entry{
		What: what, Grant: string(c.ID), Name: c.Name, Profile: c.Request.Profile, Level: c.Level.String(),
		Who: &audit.Who{Namespace: o.Namespace, Pod: o.PodName, PodUID: o.PodUID, Container: o.Container, UID: o.UID, PID: o.PID},
	}
	for _, f := range c.Placement {
		e.Fragments = append(e.Fragments, audit.Fragment{
			GPU: string(f.GPU), MemoryBytes: uint64(f.Memory), Percent: int(f.Percent), Whole: f.Whole, MIG: f.MIG.Profile,
		})
	}
	return e
}

// noteHealth writes a change of a GPU's health.
func (r *Runtime) noteHealth(gpu sharing.GPUID, h sharing.Health, reason string) {
	why := h.String()
	if reason != "" {
		why += ": " + reason
	}
	r.note(audit.Entry{What: audit.Health, Fragments: []audit.Fragment{{GPU: string(gpu)}}, Why: why})
}

// noteViolation writes what somebody did and what was done about it; err says that it was not.
func (g *guard) noteViolation(v reactive.Verdict, err error) {
	e := audit.Entry{What: audit.Violation}
	if gr, ok := g.grantOf(v.Lease); ok {
		e = claimEntry(audit.Violation, gr.Claim)
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
	g.r.note(e)
}

// noteConfig writes that a document came into force, or why it did not.
func (r *Runtime) noteConfig(source ConfigSource, pool string, mistakes []string) {
	e := audit.Entry{What: audit.Config, Why: fmt.Sprintf("pool %s of %s, sha256 %s", pool, source.File, source.SHA256)}
	if len(mistakes) > 0 {
		e.Why = "a newer document is refused"
		e.Error = errors.New(joinSentences(mistakes)).Error()
	}
	r.note(e)
}

// noteLimit writes a change of a grant's memory, and who asked for it. c is empty where the grant was not found.
func (r *Runtime) noteLimit(peer Peer, id ledger.ClaimID, amount sharing.Bytes, c ledger.Claim, err error) {
	e := claimEntry(audit.Limit, c)
	e.Grant, e.By, e.Why = string(id), fmt.Sprintf("uid %d", peer.UID), "to "+amount.String()
	if err != nil {
		e.Error = err.Error()
	}
	r.note(e)
}
