// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"

	"github.com/kerf-gpu/kerf/internal/atomicfile"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/record"
)

// save writes the record: every claim that has a cgroup. It needs the lock, so that records reach the disk
// in the order of the decisions. An error also becomes a condition, because a record that cannot be written
// must stop new grants.
func (r *Runtime) save() error {
	rec := record.Record{BootID: r.opt.BootID}
	for _, g := range r.ledger.Grants() {
		if h := r.held[g.Claim.ID]; h != nil && h.hasGroup {
			rec.Grants = append(rec.Grants, recordOf(g.Claim, h))
		}
	}
	data, err := record.Encode(rec)
	if err == nil {
		err = atomicfile.Write(r.opt.RecordPath, data, 0o600)
	}
	if err != nil {
		err = fmt.Errorf("write record %s: %w", r.opt.RecordPath, err)
		r.setCondition(r.warnings, "record", err.Error())
		return err
	}
	r.setCondition(r.warnings, "record", "")
	return nil
}

func recordOf(c ledger.Claim, h *holding) record.Grant {
	g := record.Grant{
		ID: string(c.ID), Name: c.Name, UID: c.Owner.UID, PID: c.Owner.PID,
		PodUID: c.Owner.PodUID, Container: c.Owner.Container, Profile: c.Request.Profile,
		Level: c.Level.String(), Whole: c.Request.Kind == sharing.KindWhole, Recovered: c.Recovered,
		Cgroup: h.group.Dir, Inode: h.group.Inode,
	}
	if c.Request.MinLevel != sharing.LevelUnknown {
		g.MinLevel = c.Request.MinLevel.String()
	}
	for _, f := range c.Placement {
		g.Fragments = append(g.Fragments, record.Fragment{GPU: string(f.GPU), Memory: f.Memory, Percent: uint32(f.Percent), Whole: f.Whole})
	}
	return g
}

// claimOf is the reverse of recordOf. The request is rebuilt from the fragments: it is only shown.
func claimOf(g record.Grant) (ledger.Claim, error) {
	c := ledger.Claim{
		ID: ledger.ClaimID(g.ID), Name: g.Name, Recovered: g.Recovered,
		Owner: ledger.Owner{UID: g.UID, PID: g.PID, PodUID: g.PodUID, Container: g.Container},
	}
	var err error
	if g.Level != sharing.LevelUnknown.String() {
		if c.Level, err = sharing.ParseLevel("record.level", g.Level); err != nil {
			return ledger.Claim{}, err
		}
	}
	c.Request.Profile = g.Profile
	if g.MinLevel != "" {
		if c.Request.MinLevel, err = sharing.ParseLevel("record.min_level", g.MinLevel); err != nil {
			return ledger.Claim{}, err
		}
	}
	for _, f := range g.Fragments {
		c.Placement = append(c.Placement, sharing.Fragment{GPU: sharing.GPUID(f.GPU), Memory: f.Memory, Percent: sharing.Percent(f.Percent), Whole: f.Whole})
	}
	c.Request = requestOf(c.Request, c.Placement, g.Whole)
	return c, nil
}

// requestOf fills a request's amounts from the fragments that answered it.
func requestOf(req sharing.Request, p sharing.Placement, whole bool) sharing.Request {
	req.GPUs = len(p)
	if whole {
		req.Kind = sharing.KindWhole
		return req
	}
	for _, f := range p {
		req.Memory += f.Memory
		req.Percent += f.Percent
	}
	return req
}
