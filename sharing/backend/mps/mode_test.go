// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/mpstest"
)

// Where the compute mode stays as it is, MPS works in the mode that is there, and no call sets one.
func TestModeThatStays(t *testing.T) {
	for name, rule := range map[string]ModeRule{"keep": ModeUnchanged, "read": ReadMode} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.rule = rule
			a, b := s.key(0, "team-a"), s.key(0, "team-b")
			mpstest.Connect(t, s.acquire(a, "l1", Terms{Memory: sharing.GiB}))
			if st := s.state(); st.Condition != Ready || st.Exclusive || s.mode(0) != sharing.ComputeModeDefault {
				t.Errorf("one domain: %+v, mode %v", st, s.mode(0))
			}
			mpstest.Connect(t, s.acquire(b, "l2", Terms{Memory: sharing.GiB}))
			s.release(b, "l2")
			s.release(a, "l1")
			s.wantStays(sharing.ComputeModeDefault)

			s.setByAdmin(sharing.ComputeModeExclusiveProcess)
			s.acquire(a, "l1", Terms{Memory: sharing.GiB})
			if st := s.state(); st.Condition != Ready || !st.Exclusive {
				t.Errorf("one domain in EXCLUSIVE_PROCESS: %+v", st)
			}
			_, err := s.Acquire(t.Context(), b, "l2", Terms{Memory: sharing.GiB})
			if !errors.Is(err, sharing.ErrUnavailable) || !strings.Contains(err.Error(), "admits one MPS server") {
				t.Errorf("a second domain in EXCLUSIVE_PROCESS: %v", err)
			}
			if err := s.AddUser(t.Context(), b, "l3", Terms{Memory: sharing.GiB}); err != nil { // it has no server yet
				t.Error(err)
			}
			s.acquire(a, "l4", Terms{Memory: sharing.GiB})
			for active, k := range map[string]Key{"l1": a, "l4": a, "l3": b} {
				s.release(k, active)
			}
			s.wantStays(sharing.ComputeModeExclusiveProcess)

			s.setByAdmin(sharing.ComputeModeProhibited)
			if _, err := s.Acquire(t.Context(), a, "l1", Terms{Memory: sharing.GiB}); !errors.Is(err,
				sharing.ErrUnavailable) || !strings.Contains(err.Error(), "forbids") {
				t.Errorf("a GPU that admits no program: %v", err)
			}
			s.wantStays(sharing.ComputeModeProhibited)
		})
	}
}

// A mode that was changed before the rule is restored when its last domain ends, with ModeUnchanged. With ReadMode the
// next agent that may restores it.
func TestModeChangedBefore(t *testing.T) {
	s := newSite(t)
	k, terms := s.key(0, "team-a"), Terms{Memory: sharing.GiB}
	s.acquire(k, "l1", terms)
	s.rule = ModeUnchanged
	s.release(k, "l1")
	if got := s.left(); got != nothing || s.mode(0) != sharing.ComputeModeDefault {
		t.Errorf("keep: %s left, mode %v", got, s.mode(0))
	}
	s.rule = ManageMode
	s.acquire(k, "l1", terms)
	s.rule, s.sets = ReadMode, 0
	s.agent("boot")
	if err := s.Recover(t.Context(), map[Key]map[string]Terms{k: {"l1": terms}}); err != nil {
		t.Fatal(err)
	}
	if st := s.state(); st.Condition != Ready || !st.Exclusive {
		t.Errorf("read: %+v", st)
	}
	s.release(k, "l1")
	s.tick(t.Context())
	if got := s.ModesChanged(); s.sets != 0 || s.mode(0) != sharing.ComputeModeExclusiveProcess ||
		!slices.Equal(got, []sharing.GPUID{k.GPU}) {
		t.Errorf("read: %d calls, mode %v, changed before: %v", s.sets, s.mode(0), got)
	}
	s.rule = ManageMode
	s.agent("boot")
	if err := s.Recover(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if got := s.left(); got != nothing || s.mode(0) != sharing.ComputeModeDefault || len(s.ModesChanged()) != 0 {
		t.Errorf("manage again: %s left, mode %v", got, s.mode(0))
	}
}

func (s *site) setByAdmin(mode sharing.ComputeMode) {
	s.Helper()
	if err := s.SetComputeMode(s.Context(), s.gpuID(0), mode); err != nil {
		s.Fatal(err)
	}
	s.sets = 0
}

// wantStays wants nothing left, and a mode that Kerf has not set.
func (s *site) wantStays(mode sharing.ComputeMode) {
	s.Helper()
	if got := s.left(); got != nothing || s.sets != 0 || s.mode(0) != mode {
		s.Errorf("%s left, %d calls that set a mode, mode %v, want %v", got, s.sets, s.mode(0), mode)
	}
}
