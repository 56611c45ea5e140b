// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package conditions_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/kerf-gpu/kerf/sharing/node/conditions"
)

// counted returns an empty set, and what counts its changes.
func counted() (*conditions.Set, *int) {
	n := new(int)
	return conditions.New(func() { *n++ }), n
}

func expect(t *testing.T, s *conditions.Set, effect conditions.Effect, want ...string) {
	t.Helper()
	if got := s.Sentences(effect); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A condition has the effect of its kind. Conditions are listed by kind, then by subject.
func TestEffects(t *testing.T) {
	s, _ := counted()
	s.Set(conditions.Record, "record")
	s.Set(conditions.Rescan, "rescan")
	s.Set(conditions.Driver, "driver")
	s.Set(conditions.Units, "units")
	s.Set(conditions.CDI, "cdi")
	s.SetOf(conditions.Uncounted, "g", "uncounted")
	s.SetOf(conditions.Over, "b", "over b")
	s.SetOf(conditions.Over, "a", "over a")
	s.Set(conditions.Audit, "audit")
	expect(t, s, conditions.StopsGrants, "driver", "rescan", "record")
	expect(t, s, conditions.StopsPods, "cdi", "units")
	expect(t, s, conditions.Warns, "audit", "over a", "over b", "uncounted")
	if got := s.Unserved(); !slices.Equal(got, []string{"driver", "rescan"}) {
		t.Errorf("unserved %q", got)
	}
	if !s.Has(conditions.Record) || s.Has(conditions.NoGPU) || s.Has(conditions.Over) {
		t.Error("Has sees other conditions than those that are set")
	}
}

// Each change is reported once, and nothing else is.
func TestChanges(t *testing.T) {
	s, n := counted()
	for i, step := range []struct {
		do   func()
		tell int
	}{
		{func() { s.Set(conditions.Kill, "") }, 0},
		{func() { s.Set(conditions.Kill, "one") }, 1},
		{func() { s.Set(conditions.Kill, "one") }, 0},
		{func() { s.Set(conditions.Kill, "two") }, 1},
		{func() { s.Replace(conditions.Idle, map[string]string{"a": "a", "b": "b"}) }, 1},
		{func() { s.Replace(conditions.Idle, map[string]string{"a": "a", "b": "b"}) }, 0},
		{func() { s.Replace(conditions.Idle, map[string]string{"b": "b"}) }, 1},
		{func() { s.Retain(conditions.Idle, map[string]string{"b": "b"}) }, 0},
		{func() { s.Retain(conditions.Idle, nil) }, 1},
		{func() { s.Set(conditions.Kill, "") }, 1},
	} {
		before := *n
		if step.do(); *n-before != step.tell {
			t.Errorf("step %d tells %d changes, want %d", i, *n-before, step.tell)
		}
	}
	expect(t, s, conditions.Warns)
}

// The first rejected config stops grants. A later one leaves the last good config.
func TestRejectedConfig(t *testing.T) {
	s, _ := counted()
	s.RejectConfig([]string{"x", "y"}, true)
	expect(t, s, conditions.StopsGrants, "the config has errors: x; y")
	s.ApplyConfig()
	expect(t, s, conditions.StopsGrants)
	s.RejectConfig([]string{"z"}, false)
	expect(t, s, conditions.StopsGrants)
	expect(t, s, conditions.Warns, "the config has errors: z; the last known good config stays applied")
	if got := s.ConfigErrors(); !slices.Equal(got, []string{"z"}) {
		t.Errorf("errors %q", got)
	}
	s.ApplyConfig()
	expect(t, s, conditions.Warns)
	if got := s.ConfigErrors(); got != nil {
		t.Errorf("errors %q after a config was applied", got)
	}
}

// A set can be changed and read at the same time.
func TestParallel(t *testing.T) {
	s := conditions.New(func() {})
	var all sync.WaitGroup
	for _, of := range []string{"a", "b", "c", "d"} {
		all.Go(func() {
			s.SetOf(conditions.Over, of, of)
			s.Sentences(conditions.Warns)
		})
	}
	all.Wait()
	expect(t, s, conditions.Warns, "a", "b", "c", "d")
}
