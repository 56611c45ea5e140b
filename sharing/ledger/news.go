// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
)

// Transition is a step in the life of a grant, or of one of its attachments.
type Transition struct {
	Grant GrantID
	// Attachment is true for a step of an attachment. ContainerID names its container; it is empty for a process.
	Attachment  bool
	ContainerID string
	// Instance is true if the grant has a MIG instance.
	Instance bool
	// From and To differ. Gone is what comes before the first step and after the last one.
	From, To State
}

// life is the state of a grant and its attachments.
type life struct {
	state        State
	active, next mark
}

// mark is the state of an attachment; Released for none.
type mark struct {
	containerID string
	state       State
}

func markOf(a *Attachment) mark {
	if a == nil {
		return mark{state: Released}
	}
	return mark{a.ContainerID, a.State}
}

// unborn is what is known of a grant before its first step.
func unborn() life { return life{Released, markOf(nil), markOf(nil)} }

func (e *entry) life() life {
	return life{Grant{Active: e.active, Withdrawn: e.withdrawn}.State(), markOf(e.active), markOf(e.next)}
}

// Transitions returns the steps since the last call, each from its old state to its new one. Grants are in the order of
// their first step. A new grant comes before its attachments, and any other after them.
func (x *index) Transitions() []Transition {
	var out []Transition
	for _, e := range x.changed {
		now := unborn()
		if x.grants[e.grant.ID] == e {
			now = e.life()
		}
		out = append(out, e.steps(e.published, now)...)
		e.published, e.changed = now, false
	}
	clear(x.changed)
	x.changed = x.changed[:0]
	return out
}

func (e *entry) steps(was, now life) (out []Transition) {
	if was == now {
		return nil
	}
	instance := slices.ContainsFunc(e.grant.Placement, func(s sharing.Share) bool { return !s.MIG.None() })
	step := func(attachment bool, containerID string, from, to State) {
		if from == to {
			return
		}
		out = append(out, Transition{Grant: e.grant.ID, Attachment: attachment, ContainerID: containerID,
			Instance: instance, From: from, To: to})
	}
	if was.state == Released {
		step(false, "", was.state, now.state)
	}
	for _, m := range []mark{was.active, was.next} {
		step(true, m.containerID, m.state, now.of(m))
	}
	for _, m := range []mark{now.active, now.next} {
		if was.of(m) == Released {
			step(true, m.containerID, Released, m.state)
		}
	}
	if was.state != Released {
		step(false, "", was.state, now.state)
	}
	return out
}

// of is the state of the attachment of the same container or process.
func (l life) of(m mark) State {
	for _, one := range []mark{l.active, l.next} {
		if m.state != Released && one.state != Released && one.containerID == m.containerID {
			return one.state
		}
	}
	return Released
}
