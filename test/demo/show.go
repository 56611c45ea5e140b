// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
)

const gib = 1 << 30

func say(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// show collects what was shown and whether it held.
type show struct {
	*machine
	results []result
	// unit is what the demo calls 1 GiB: smaller on GPUs that are smaller than the simulated H100.
	unit uint64
	// capped is true when this driver can hold a share to its size.
	capped bool
	gpus   int
}

type result struct {
	what string
	ok   bool
	why  string
}

// check notes one thing shown; problems say what did not hold.
func (s *show) check(what string, problems ...string) {
	r := result{what: what, ok: len(problems) == 0, why: strings.Join(problems, "; ")}
	s.results = append(s.results, r)
	if r.ok {
		say("   -> ok\n")
	} else {
		say("   -> NOT ok: %s\n", r.why)
	}
}

// sum prints a line per thing shown and reports whether all held.
func (s *show) sum() bool {
	all := true
	say("What was shown:")
	for _, r := range s.results {
		mark := "ok    "
		if !r.ok {
			mark, all = "NOT ok", false
		}
		say("  %s  %s", mark, r.what)
		if !r.ok {
			say("          %s", r.why)
		}
	}
	return all
}

// play runs all scenes; an error means that the demo itself could not go on.
func (s *show) play(ctx context.Context) error {
	if _, err := s.kerf(ctx, "status", "--wait", "ready", "--timeout", "1m"); err != nil {
		return err
	}
	first, err := s.status(ctx)
	if err != nil {
		return err
	}
	s.gpus, s.unit = len(first.GPUs), gib
	for _, g := range first.GPUs {
		if usable := g.Memory - g.Kept; usable < 79*gib {
			s.unit = min(s.unit, usable/79>>20<<20)
		}
		s.capped = len(g.Levels) > 1 && g.Levels[1] == "driver"
	}
	say("%d x %s; a share can be held at level %q.\n", s.gpus, first.GPUs[0].Model, first.GPUs[0].Levels[len(first.GPUs[0].Levels)-1])
	for _, scene := range []func(context.Context) error{
		s.packing, s.size, s.greedy, s.family, s.whole, s.noRoom, s.noLevel, s.picture, s.crash, s.truth, s.giveBack,
	} {
		if err := scene(ctx); err != nil {
			return err
		}
	}
	return nil
}

// amount is n units as kerf and gpuload read it.
func (s *show) amount(n int) string { return fmt.Sprintf("%dMiB", uint64(n)*s.unit>>20) }

// size of n units for people: GiB on the simulated machine.
func (s *show) people(n int) string {
	if s.unit == gib {
		return fmt.Sprintf("%dGiB", n)
	}
	return s.amount(n)
}
