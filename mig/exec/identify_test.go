// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/mig/plan"
	"github.com/kerf-gpu/kerf/sharing"
)

// One instance that the driver reports, and what the journal had: whose is it.
func TestIdentify(t *testing.T) {
	at, other := place{9, 4}, place{9, 0}
	whole := []Compute{{0, true, "MIG-1"}}
	mine := func(ci int, uuid string) []owned { return []owned{{at, 3, ci, uuid}} }
	tests := map[string]struct {
		mine  []owned
		doing *doing
		cis   []Compute
		want  *Own
	}{
		"as it was left": {mine(0, "MIG-1"), nil, whole, &Own{at.mig(), 3, 0, "MIG-1"}},
		"another device": {mine(0, "MIG-0"), nil, whole, nil},
		"divided": {mine(0, "MIG-1"), nil,
			[]Compute{{0, false, "MIG-1"}, {1, false, "MIG-2"}}, nil},
		"not whole":             {mine(0, "MIG-1"), nil, []Compute{{0, false, "MIG-1"}}, nil},
		"half made":             {mine(-1, ""), nil, nil, &Own{at.mig(), 3, -1, ""}},
		"compute instance gone": {mine(0, "MIG-1"), nil, nil, nil},
		"compute instance destroyed": {mine(0, "MIG-1"), &doing{"destroy-ci", at, 3}, nil,
			&Own{at.mig(), 3, -1, ""}},
		"another's compute instance destroyed": {mine(0, "MIG-1"), &doing{"destroy-ci", other, 2}, nil, nil},
		"compute instance made": {mine(-1, ""), &doing{"create-ci", at, 3}, whole,
			&Own{at.mig(), 3, 0, "MIG-1"}},
		"compute instance made by hand": {mine(-1, ""), &doing{"destroy-gi", at, 3}, whole, nil},
		"divided while made": {mine(-1, ""), &doing{"create-ci", at, 3},
			[]Compute{{0, false, "MIG-1"}}, nil},
		"made":                                {nil, &doing{"create-gi", at, -1}, nil, &Own{at.mig(), 3, -1, ""}},
		"made elsewhere":                      {nil, &doing{"create-gi", other, -1}, nil, nil},
		"made by hand, and in use by now":     {nil, &doing{"create-gi", at, -1}, whole, nil},
		"never heard of":                      {nil, nil, whole, nil},
		"never heard of, no compute instance": {nil, nil, nil, nil},
		"id of one at another place":          {[]owned{{other, 3, 0, "MIG-1"}}, nil, whole, nil},
		"place of one with another id":        {[]owned{{at, 4, 0, "MIG-1"}}, nil, whole, nil},
		"destroying it had not begun": {mine(-1, ""), &doing{"destroy-gi", at, 3}, nil,
			&Own{at.mig(), 3, -1, ""}},
		"destroying its compute had not begun": {mine(0, "MIG-1"), &doing{"destroy-ci", at, 3}, whole,
			&Own{at.mig(), 3, 0, "MIG-1"}},
		"compute instance created again by another": {mine(0, "MIG-1"), &doing{"destroy-ci", at, 3},
			[]Compute{{0, true, "MIG-2"}}, nil},
	}
	for name, tt := range tests {
		j := journal{Mine: tt.mine, Change: &change{Doing: tt.doing}}
		own, foreign := identify(j, []Instance{{Place: at.mig(), GI: 3, CIs: tt.cis}})
		if (tt.want != nil) != (len(own) == 1) || len(own)+len(foreign) != 1 || tt.want != nil && own[0] != *tt.want {
			t.Errorf("%s: ours %+v, others %+v", name, own, foreign)
		}
	}
	if own, foreign := identify(journal{Mine: mine(0, "MIG-1")}, nil); len(own)+len(foreign) != 0 {
		t.Errorf("nothing there: %+v, %+v", own, foreign)
	}
}

// If the caller goes away in the middle, at each event, the change is still finished or undone.
func TestAskerGoesAway(t *testing.T) {
	base, events := reference(t)
	failed := 0
	for at := 1; at <= events; at++ {
		s := base.fresh()
		ctx, cancel := context.WithCancel(t.Context())
		s.meanwhileAt, s.meanwhile = at, cancel
		s.ctx = ctx
		var err error
		s.run(0, false, func() { _, err = s.act() })
		s.ctx = nil
		if err != nil {
			failed++
		}
		if trouble := s.e.UnavailableReason(s.gpu()); trouble != "" {
			t.Fatalf("gone at %d: %s", at, trouble)
		}
		s.end(s.e, fmt.Sprintf("gone at %d: %v", at, err))
		cancel()
	}
	if failed == 0 {
		t.Error("it never mattered")
	}
}

// A reboot in the middle of an undo brings back what was before.
func TestRebootWhileUndoing(t *testing.T) {
	s := newScene(t)
	s.refuse[plan.CreateGI] = sharing.ErrExhausted
	if _, err := s.act(); err == nil || s.e.UnavailableReason(s.gpu()) == "" {
		t.Fatalf("no trouble: %v", err)
	}
	clear(s.refuse)
	s.reboot("boot 2")
	if got := s.ours(s.ready()); !slices.Equal(got, s.before) {
		t.Errorf("%v, want %v", got, s.before)
	}
}

// Random layouts one after the other, each process killed somewhere: instances are always where the last plan or the
// one before wanted them.
func TestRandomLayouts(t *testing.T) {
	for _, name := range []string{"a30x2", "h100x8", "rtxpro6000x4"} {
		w := newWorld(t, name)
		e := w.ready()
		last := []mig.Place{}
		small, large := w.table.Profiles()[0].Name, w.table.Profiles()[len(w.table.Profiles())-1].Name
		layouts := [][]string{{small, small}, {large}, {}, {small, small, small}}
		for i := range 60 {
			layout := layouts[i*7%4]
			w.run(1+i*5%23, i%3 == 0, func() {
				if _, err := w.apply(e, layout...); err != nil {
					t.Fatal(err)
				}
			})
			e = w.ready()
			got := w.ours(e)
			if len(got) != len(layout) && !slices.Equal(got, last) {
				t.Fatalf("%s, round %d: %v after %v, wanted %v", name, i, got, last, layout)
			}
			last = got
		}
	}
}
