// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"maps"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend"
	"github.com/kerf-gpu/kerf/sharing/backend/choice"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/record"
)

// texts keeps the text of each grant that is on record. Each container's start writes all grants twice, and nearly all
// of them have not changed.
type texts struct {
	// grants are those to write, and written are their texts. Both are kept for their memory, as out is.
	grants  []*ledger.Grant
	written []record.Text
	out     []byte
	byGrant map[ledger.GrantID]*grantText
	// turn counts the records, so that ended grants are known.
	turn uint64
}

// grantText is the text of a grant as of one change.
type grantText struct {
	grant *ledger.Grant
	text  record.Text
	turn  uint64
}

// encode renders the record of the grants with a cgroup and of those of pods. The bytes are good until the next call.
func (c *texts) encode(bootID string) ([]byte, error) {
	if c.byGrant == nil {
		c.byGrant = map[ledger.GrantID]*grantText{}
	}
	c.turn++
	c.written = c.written[:0]
	for _, g := range c.grants {
		if !g.Owner.Pod() && g.Current().Cgroup == "" {
			continue
		}
		one := c.byGrant[g.ID]
		if one == nil || one.grant != g {
			r := Recorded(g.Reservation, g.Current())
			r.ClaimEnded = g.Withdrawn == ledger.ClaimEnded
			text, err := r.Text()
			if err != nil {
				return nil, err
			}
			one = &grantText{grant: g, text: text}
			c.byGrant[g.ID] = one
		}
		one.turn = c.turn
		c.written = append(c.written, one.text)
	}
	maps.DeleteFunc(c.byGrant, func(_ ledger.GrantID, one *grantText) bool { return one.turn != c.turn })
	var err error
	c.out, err = record.Append(c.out[:0], bootID, c.written)
	return c.out, err
}

// Recorded is the record of a grant with one of its attachments.
func Recorded(c ledger.Reservation, a ledger.Attachment) record.Grant {
	g := record.Grant{
		ID: string(c.ID), Name: c.Name, UID: c.Owner.UID, PID: c.Owner.PID,
		PodUID: c.Owner.PodUID, Container: c.Owner.Container, Namespace: c.Owner.Namespace, PodName: c.Owner.PodName,
		Profile: c.Request.Profile, Requests: sharing.FormatResourceRequests(c.Requests), With: string(c.With),
		Cgroup: a.Cgroup,
		Inode:  a.Inode,
		Level:  levelName(c.Level), Backend: c.Backend.String(), Whole: c.Request.Kind == sharing.KindWhole,
		Recovered: c.Recovered, Claims: c.Claims,
	}
	if backend.PropertiesOf(c.Backend).Served {
		g.MPSDomain = c.Domain
	}
	if c.Request.MinLevel != sharing.LevelUnknown {
		g.MinLevel = levelName(c.Request.MinLevel)
	}
	if c.Owner.Pod() {
		g.Kind, g.Priority = c.Kind.String(), c.Priority
	}
	g.Shares = recordPlacement(c.Placement)
	if a.ContainerID != "" {
		g.Use = &record.Use{ContainerID: a.ContainerID, Container: a.Container,
			Requests: sharing.FormatResourceRequests(a.Requests),
			Part:     recordPlacement(a.Part)}
	}
	return g
}

// levelName is the name of a level in the checkpoint.
func levelName(l sharing.Level) string {
	if l == sharing.LevelUserspace {
		return sharing.OldLevelUserspace
	}
	return l.String()
}

func recordPlacement(p sharing.Placement) []record.Share {
	var out []record.Share
	for _, f := range p {
		one := record.Share{GPU: f.GPU.String(), Memory: f.Memory, Burst: f.Burst, Percent: uint32(f.Percent),
			Whole: f.Whole}
		if !f.MIG.None() {
			one.MIG = &record.Instance{Profile: f.MIG.Profile, ID: f.MIG.ID, Start: f.MIG.Start, Size: f.MIG.Size}
		}
		out = append(out, one)
	}
	return out
}

func placementOf(fragments []record.Share) (p sharing.Placement, err error) {
	for _, f := range fragments {
		ref, err := sharing.ParseGPURef(f.GPU)
		if err != nil {
			return nil, err
		}
		one := sharing.Share{GPU: ref, Memory: f.Memory, Burst: f.Burst, Percent: sharing.Percent(f.Percent),
			Whole: f.Whole}
		if f.MIG != nil {
			one.MIG = sharing.Instance{Profile: f.MIG.Profile, ID: f.MIG.ID, Start: f.MIG.Start, Size: f.MIG.Size}
		}
		p = append(p, one)
	}
	return p, nil
}

// Read is the reverse of Recorded. It rebuilds the request from the shares. An error wraps sharing.ErrInvalid or the
// errors of the parsers of package sharing.
func Read(g record.Grant) (c ledger.Reservation, a ledger.Attachment, err error) {
	if c, err = grantOf(g); err != nil {
		return c, a, err
	}
	a = ledger.Attachment{Cgroup: g.Cgroup, Inode: g.Inode}
	if g.Use != nil {
		a.ContainerID, a.Container = g.Use.ContainerID, g.Use.Container
		if a.Part, err = placementOf(g.Use.Part); err != nil {
			return c, a, err
		}
		a.Requests, err = sharing.ParseResourceRequests(g.Use.Requests)
	}
	return c, a, err
}

// termsOf are the terms that are on record.
func termsOf(g record.Grant) (t ledger.Terms, err error) {
	t = ledger.Terms{Kind: kindOf(g.Kind), Domain: g.MPSDomain, Priority: g.Priority, Claims: g.Claims}
	if g.Level == sharing.LevelNone.String() {
		t.LevelReason = "no backend enforced it when it was granted"
	}
	if t.Backend, err = choice.Recorded(g.Backend, levelNamed(g.Level)); err != nil {
		return t, err
	}
	if t.Requests, err = sharing.ParseResourceRequests(g.Requests); err != nil ||
		g.Level == sharing.LevelUnknown.String() {
		return t, err
	}
	t.Level, err = sharing.ParseLevel("record.level", g.Level)
	return t, err
}

// levelNamed is the level of that name, unknown for any other.
func levelNamed(s string) sharing.Level {
	l, err := sharing.ParseLevel("record.level", s)
	if err != nil {
		return sharing.LevelUnknown
	}
	return l
}

func kindOf(s string) sharing.ContainerKind {
	for _, k := range []sharing.ContainerKind{sharing.ContainerSidecar, sharing.ContainerInit} {
		if s == k.String() {
			return k
		}
	}
	return sharing.ContainerApp
}

// grantOf reads the grant.
func grantOf(g record.Grant) (ledger.Reservation, error) {
	c := ledger.Reservation{
		ID: ledger.GrantID(g.ID), Name: g.Name, Recovered: g.Recovered, With: ledger.GrantID(g.With),
		Owner: ledger.Owner{UID: g.UID, PID: g.PID, PodUID: g.PodUID, Container: g.Container, Namespace: g.Namespace,
			PodName: g.PodName},
	}
	var err error
	if c.Terms, err = termsOf(g); err != nil {
		return ledger.Reservation{}, err
	}
	c.Request.Profile = g.Profile
	if g.MinLevel != "" {
		if c.Request.MinLevel, err = sharing.ParseLevel("record.min_level", g.MinLevel); err != nil {
			return ledger.Reservation{}, err
		}
	}
	if c.Placement, err = placementOf(g.Shares); err != nil {
		return ledger.Reservation{}, err
	}
	c.Request = RequestOf(c.Request, c.Placement, g.Whole)
	return c, nil
}

// RequestOf fills a request's amounts from the shares that answered it.
func RequestOf(req sharing.Request, p sharing.Placement, whole bool) sharing.Request {
	req.GPUs = len(p)
	if whole {
		req.Kind = sharing.KindWhole
		return req
	}
	if len(p) == 1 && !p[0].MIG.None() {
		req.Kind, req.MIG = sharing.KindMIG, p[0].MIG.Profile
		return req
	}
	for _, f := range p {
		req.Memory += f.Memory
		req.Percent += f.Percent
	}
	return req
}
