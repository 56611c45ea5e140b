// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// seen is what one program of the matrix did, by the simulated driver's own account, and what Kerf said of it.
type seen struct {
	// cap is what it was granted, and peak the most that was held at any moment, over all GPUs.
	cap, peak uint64
	// context is what one context of this GPU takes.
	context uint64
	// took is how much the program says that it could allocate, and failed the error that it met.
	took   uint64
	failed string
	// killed is for which reasons the agent ended processes meanwhile, as its metrics name them; empty for none.
	killed string
	// delay is for how long at most it was over its cap when that was found; 0 if it was not found so.
	delay time.Duration
	// lasted is for how long it was above its cap without a break, from look to look.
	lasted time.Duration
	// first and last are the levels that the grant showed at its start and while the program held what it had.
	first, last string
	// rejects says that the pool wants this memory rejected, which is the CUDA error of a driver that does not have it.
	rejects bool
	// warned says that a warning of the agent named the grant.
	warned bool
	// slack is how much memory outside the driver's lists is taken for the driver's own, where the backend does not
	// limit all of the memory. 0 where it does.
	slack uint64
}

// verdict is what a cell of the matrix says.
type verdict string

const (
	wasHeld  verdict = "held"
	heldLate verdict = "held, except for a late context"
	ended    verdict = "ended after the fact"
	shown    verdict = "over, and shown"
	refused  verdict = "refused"
	missing  verdict = "not in this driver"
	passed   verdict = "over for a moment"
	small    verdict = "over by less than is reported"
	silent   verdict = "OVER, AND SILENT"
)

// stopped are the verdicts for attempts that a backend stops by itself.
func stopped() []verdict { return []verdict{wasHeld, heldLate, refused, missing} }

// blink is how long something may be over its cap before the watch has to have seen it: its looks are 100 ms apart, two
// are needed, and the machine is busy.
const blink = time.Second

// judged says what became of one program. strict is for a backend that refuses each byte too much, so that nothing
// passes there.
func judged(s seen, strict bool) verdict {
	over := s.peak > s.cap
	warned := s.warned || s.last == "none" || s.last == "unknown"
	switch {
	case s.killed != "": // even if no look here saw it over its cap
		return ended
	case over && warned && s.peak <= s.cap+s.context:
		return heldLate
	case over && warned:
		return shown
	case over && !strict && s.lasted < blink:
		return passed
	case over && s.peak <= s.cap+s.slack:
		return small
	case over:
		return silent
	case !s.rejects && strings.Contains(s.failed, "NOT_SUPPORTED") || strings.Contains(s.failed, "NOT_FOUND"):
		return missing
	case s.took == 0 && s.failed != "":
		return refused
	}
	return wasHeld
}

// over is how many bytes a program came above its cap.
func over(s seen) uint64 {
	if s.peak <= s.cap {
		return 0
	}
	return s.peak - s.cap
}

func TestJudged(t *testing.T) {
	base := seen{cap: 2 * gib, context: 100 * mib, lasted: 5 * time.Second, first: "userspace", last: "userspace"}
	with := func(change func(*seen)) seen {
		s := base
		change(&s)
		return s
	}
	for name, tc := range map[string]struct {
		s      seen
		strict bool
		want   verdict
		over   uint64
	}{
		"refused past its cap": {s: with(func(s *seen) {
			s.peak, s.took, s.failed = 2*gib, 19*gib/10,
				oom
		}), want: wasHeld},
		"nothing at all": {s: with(func(s *seen) { s.peak, s.failed = 0, oom }), want: refused},
		"no such function": {s: with(func(s *seen) { s.failed = "CUDA_ERROR_NOT_SUPPORTED" }),
			want: missing},
		"rejected by the pool": {
			s: with(func(s *seen) { s.failed, s.rejects = "CUDA_ERROR_NOT_SUPPORTED", true }), want: refused},
		"over, and no such function": {
			s: with(func(s *seen) { s.peak, s.failed = 3*gib, "CUDA_ERROR_NOT_SUPPORTED" }), want: silent, over: gib},
		"over and killed": {s: with(func(s *seen) { s.peak, s.killed = 3*gib, "over_cap" }),
			want: ended, over: gib},
		"killed before it was seen": {s: with(func(s *seen) { s.killed = "over_cap" }), want: ended},
		"over and warned": {s: with(func(s *seen) { s.peak, s.warned = 3*gib, true }), want: shown,
			over: gib},
		"over by its context, warned": {s: with(func(s *seen) { s.peak, s.warned = 2*gib+90*mib, true }),
			want: heldLate, over: 90 * mib},
		"over by its context": {s: with(func(s *seen) { s.peak = 2*gib + 90*mib }), want: silent,
			over: 90 * mib},
		"over and no one knows": {s: with(func(s *seen) { s.peak = 2*gib + 300*mib }), want: silent,
			over: 300 * mib},
		"over at level unknown": {s: with(func(s *seen) { s.peak, s.last = 3*gib, "unknown" }),
			want: shown, over: gib},
		"over at level none": {s: with(func(s *seen) { s.peak, s.last = 3*gib, "none" }),
			want: shown, over: gib},
		"over and back at once": {
			s: with(func(s *seen) { s.peak, s.lasted = 3*gib, 50*time.Millisecond }), want: passed, over: gib},
		"over by what may be the driver's": {s: with(func(s *seen) { s.peak, s.slack = 2*gib+30*mib, 32*mib }),
			want: small, over: 30 * mib},
		"over by more than may be the driver's": {s: with(func(s *seen) { s.peak, s.slack = 2*gib+33*mib, 32*mib }),
			want: silent, over: 33 * mib},
		"the same past a strict one": {s: with(func(s *seen) { s.peak, s.lasted = 3*gib, 50*time.Millisecond }),
			strict: true, want: silent, over: gib},
		"warned of what is not counted": {s: with(func(s *seen) { s.peak, s.warned = 3*gib, true }), strict: true,
			want: shown, over: gib},
	} {
		t.Run(name, func(t *testing.T) {
			if got := judged(tc.s, tc.strict); got != tc.want || over(tc.s) != tc.over {
				t.Errorf("%s, over by %d; want %s, %d", got, over(tc.s), tc.want, tc.over)
			}
		})
	}
}

func (s seen) String() string {
	return fmt.Sprintf("cap %d, peak %d, took %d, error %q, killed %q, over for %s, found after %s, level %s then "+
		"%s, warned %t", s.cap, s.peak, s.took, s.failed, s.killed, s.lasted, s.delay, s.first, s.last, s.warned)
}
