// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// one is a grant, or one of its attachments.
type one struct {
	grant       ledger.GrantID
	attachment  bool
	containerID string
}

// story is what transitions tell of grants and attachments.
type story map[one]string

// after applies transitions. Each begins where the one before it ended.
func (s story) after(t *testing.T, steps []ledger.Transition) {
	t.Helper()
	for _, step := range steps {
		of := one{step.Grant, step.Attachment, step.ContainerID}
		from, known := s[of]
		if !known {
			from = ledger.Released.String()
		}
		if step.From.String() != from || step.From == step.To {
			t.Fatalf("%+v, and it was %s", step, from)
		}
		if s[of] = step.To.String(); step.To == ledger.Released {
			delete(s, of)
		}
	}
}

// lives is the story as the ledger has it.
func lives(l *ledger.Ledger) story {
	s := story{}
	for _, g := range l.Grants() {
		s[one{grant: g.ID}] = g.State().String()
		for _, a := range []*ledger.Attachment{g.Next, g.Active} {
			if a != nil {
				s[one{g.ID, true, a.ContainerID}] = a.State.String()
			}
		}
	}
	return s
}

// What several calls do between two readings is one step. What decides nothing by states is none.
func TestTransitions(t *testing.T) {
	l := ledger.New()
	pod := ledger.Reservation{
		ID: "a", Owner: ledger.Owner{PodUID: "p", Container: "main"},
		Request:   sharing.Request{GPUs: 1, Memory: 1 << 30},
		Placement: sharing.Placement{{GPU: sharing.GPURef{UUID: "g"}, Memory: 1 << 30}},
	}
	const c = "c1"
	grant := func(from, to ledger.State) ledger.Transition {
		return ledger.Transition{Grant: "a", From: from, To: to}
	}
	attachment := func(from, to ledger.State) ledger.Transition {
		return ledger.Transition{Grant: "a", Attachment: true, ContainerID: c, From: from, To: to}
	}
	for _, tt := range []struct {
		name string
		do   func() error
		want []ledger.Transition
	}{
		{"inventory", func() error {
			return l.SetInventory([]sharing.GPU{{UUID: "g", Memory: 8 << 30, Health: sharing.HealthOK}})
		}, nil},
		{"claim", func() error { return l.Reserve(pod) }, []ledger.Transition{grant(ledger.Released, ledger.Reserved)}},
		{"terms", func() error { l.SetTerms("a", func(t *ledger.Terms) { t.Priority = 3 }); return nil }, nil},
		{"assign", func() error { return l.Assign("a", ledger.Attachment{ContainerID: c}) },
			[]ledger.Transition{attachment(ledger.Released, ledger.Assigned)}},
		{"created", func() error { l.Created(c, true); return nil },
			[]ledger.Transition{attachment(ledger.Assigned, ledger.Injected)}},
		{"activate and activate", func() error { return errors.Join(l.Activate("a", c, "/cg", 1), l.Activated("a")) },
			[]ledger.Transition{attachment(ledger.Injected, ledger.Active), grant(ledger.Reserved, ledger.Active)}},
		{"drained", func() error { l.Drained("a", true); return nil },
			[]ledger.Transition{attachment(ledger.Active, ledger.Releasing)}},
		{"withdraw", func() error { l.Withdraw("a", ledger.PodRemoved); return nil }, nil},
		{"end", func() error { return l.EndAttachment("a") },
			[]ledger.Transition{attachment(ledger.Releasing, ledger.Released), grant(ledger.Active, ledger.Releasing)}},
		{"release and grant again", func() error { return errors.Join(l.Release("a"), l.Reserve(pod)) },
			[]ledger.Transition{grant(ledger.Releasing, ledger.Released), grant(ledger.Released, ledger.Reserved)}},
		{"come and gone", func() error {
			other := pod
			other.ID, other.Owner.PodUID = "b", "q"
			return errors.Join(l.Reserve(other), l.Release("b"))
		}, nil},
	} {
		if err := tt.do(); err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if d := cmp.Diff(tt.want, l.Transitions()); d != "" {
			t.Errorf("%s: %s", tt.name, d)
		}
	}
}
