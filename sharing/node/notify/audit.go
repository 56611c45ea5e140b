// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"fmt"
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/audit"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// Audit takes the entries of the audit log, and returns at once; nil where none is kept.
type Audit func(audit.Entry)

// Write writes an entry with the time.
func (a Audit) Write(e audit.Entry) {
	if a != nil {
		e.Time = time.Now()
		a(e)
	}
}

// Grant writes what happened to a grant. backend is 0 where it is not known.
func (a Audit) Grant(kind string, c ledger.Reservation, backend sharing.Backend, why string, err error) {
	if a == nil {
		return
	}
	e := Entry(kind, c)
	e.Reason = why
	if backend != 0 {
		e.Backend = backend.String()
	}
	e.Error = text(err)
	a.Write(e)
}

// Entry is the entry of a grant.
func Entry(kind string, c ledger.Reservation) audit.Entry {
	o := c.Owner
	e := audit.Entry{
		Type: kind, Grant: string(c.ID), Name: c.Name, Profile: c.Request.Profile, Level: c.Level.String(),
		Subject: &audit.Subject{Namespace: o.Namespace, Pod: o.PodName, PodUID: o.PodUID, Container: o.Container,
			UID: o.UID, PID: o.PID, Claims: c.Claims},
	}
	for _, f := range c.Placement {
		e.Shares = append(e.Shares, audit.Share{
			GPU: f.GPU.String(), MemoryBytes: uint64(f.Memory), Percent: int(f.Percent), Whole: f.Whole,
			MIG: f.MIG.Profile,
		})
	}
	return e
}

// Health writes a change of a GPU's health.
func (a Audit) Health(gpu sharing.GPURef, h sharing.Health, reason string) {
	why := h.String()
	if reason != "" {
		why += ": " + reason
	}
	a.Write(audit.Entry{Type: audit.Health, Shares: []audit.Share{{GPU: gpu.String()}}, Reason: why})
}

// Config writes that a config was applied, or why it was rejected.
func (a Audit) Config(pool, file, sha256 string, mistakes []string) {
	e := audit.Entry{Type: audit.Config, Reason: fmt.Sprintf("pool %s of %s, sha256 %s", pool, file, sha256)}
	if len(mistakes) > 0 {
		e.Reason = "a newer config is rejected"
		e.Error = strings.Join(mistakes, "; ")
	}
	a.Write(e)
}

// Limit writes that a user changes the memory of a grant. c is empty where that does not exist.
func (a Audit) Limit(uid int, id ledger.GrantID, amount sharing.Bytes, c ledger.Reservation, err error) {
	e := Entry(audit.Resize, c)
	e.Grant, e.By, e.Reason = string(id), fmt.Sprintf("uid %d", uid), "to "+amount.String()
	e.Error = text(err)
	a.Write(e)
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
