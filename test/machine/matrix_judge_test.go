// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"strings"
	"testing"
)

// seen is what one program of the matrix did, by the simulated driver's own account, and what Kerf said of it.
type seen struct {
	// cap is what it was granted, and peak the most that its cgroup held at any look, over all GPUs.
	cap, peak uint64
	// context is what one context of this GPU takes.
	context uint64
	// took is how much the program says that it could allocate, and failed the error that it met.
	took   uint64
	failed string
	// killed says that the agent ended a process meanwhile.
	killed bool
	// first and last are the levels that the grant showed at its start and while the program held what it had.
	first, last string
	// told says that a warning of the agent named the grant.
	told bool
}

// verdict is what a cell of the matrix says.
type verdict string

const (
	wasHeld   verdict = "held"
	heldLate  verdict = "held, but for a context that was seen late"
	ended     verdict = "ended after the fact"
	shown     verdict = "over, and shown"
	refused   verdict = "refused"
	missing   verdict = "not in this driver"
	uncharged verdict = "not charged"
	silent    verdict = "OVER, AND SILENT"
)

// judged says what became of one program. excuse is why a driver is known not to charge what it takes; empty for none.
func judged(s seen, excuse string) verdict {
	over := s.peak > s.cap
	switch {
	case strings.Contains(s.failed, "NOT_SUPPORTED") || strings.Contains(s.failed, "NOT_FOUND"):
		return missing
	case s.killed: // even if no look here saw it over its cap
		return ended
	case !over && s.took == 0 && s.failed != "":
		return refused
	case !over:
		return wasHeld
	case excuse != "":
		return uncharged
	case s.told || s.last == "none" || s.last == "unknown":
		if s.peak <= s.cap+s.context {
			return heldLate
		}
		return shown
	}
	return silent
}

// over is how far a program came above its cap, in steps that do not change from run to run.
func over(s seen) string {
	switch {
	case s.peak <= s.cap:
		return "0"
	case s.peak <= s.cap+s.context:
		return "at most a context"
	case s.peak <= s.cap+s.cap/4:
		return "at most a quarter"
	}
	return "more than a quarter"
}

func TestJudged(t *testing.T) {
	base := seen{cap: 2 * gib, context: 100 * mib, first: "client", last: "client"}
	with := func(change func(*seen)) seen {
		s := base
		change(&s)
		return s
	}
	for name, tc := range map[string]struct {
		s      seen
		excuse string
		want   verdict
		over   string
	}{
		"refused past its cap":       {s: with(func(s *seen) { s.peak, s.took, s.failed = 2*gib, 19*gib/10, oom }), want: wasHeld, over: "0"},
		"nothing at all":             {s: with(func(s *seen) { s.peak, s.failed = 0, oom }), want: refused, over: "0"},
		"no such function":           {s: with(func(s *seen) { s.failed = "CUDA_ERROR_NOT_SUPPORTED" }), want: missing, over: "0"},
		"over and killed":            {s: with(func(s *seen) { s.peak, s.killed = 3*gib, true }), want: ended, over: "more than a quarter"},
		"killed before it was seen":  {s: with(func(s *seen) { s.killed = true }), want: ended, over: "0"},
		"over and told":              {s: with(func(s *seen) { s.peak, s.told = 3*gib, true }), want: shown, over: "more than a quarter"},
		"over by its context, told":  {s: with(func(s *seen) { s.peak, s.told = 2*gib+90*mib, true }), want: heldLate, over: "at most a context"},
		"over by its context":        {s: with(func(s *seen) { s.peak = 2*gib + 90*mib }), want: silent, over: "at most a context"},
		"over and nobody knows":      {s: with(func(s *seen) { s.peak = 2*gib + 300*mib }), want: silent, over: "at most a quarter"},
		"over at level unknown":      {s: with(func(s *seen) { s.peak, s.last = 3*gib, "unknown" }), want: shown, over: "more than a quarter"},
		"over at level none":         {s: with(func(s *seen) { s.peak, s.last = 3*gib, "none" }), want: shown, over: "more than a quarter"},
		"over, known not to charge":  {s: with(func(s *seen) { s.peak = 3 * gib }), excuse: "managed", want: uncharged, over: "more than a quarter"},
		"killed in spite of excuses": {s: with(func(s *seen) { s.peak, s.killed = 3*gib, true }), excuse: "managed", want: ended, over: "more than a quarter"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := judged(tc.s, tc.excuse); got != tc.want || over(tc.s) != tc.over {
				t.Errorf("%s, over by %s; want %s, %s", got, over(tc.s), tc.want, tc.over)
			}
		})
	}
}

func (s seen) String() string {
	return fmt.Sprintf("cap %d, peak %d, took %d, error %q, killed %t, level %s then %s, told %t", s.cap, s.peak, s.took, s.failed, s.killed, s.first, s.last, s.told)
}
