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
	// level is what the node enforces shares at.
	level level
	gpus  int
}

// The words for what was shown.
const (
	wordOK         = "ok"
	wordNotOK      = "NOT ok"
	wordUnenforced = "not enforced"
)

type result struct {
	what, word, why string
	// level is that of the shares that were shown, empty where there were none.
	level level
}

// said is the word with the level.
func (r result) said() string {
	if r.level == "" {
		return r.word
	}
	return r.word + " at level " + string(r.level)
}

// check notes one thing shown; problems say what did not hold.
func (s *show) check(what string, problems ...string) {
	word := wordOK
	if len(problems) > 0 {
		word = wordNotOK
	}
	s.note(result{what: what, word: word, why: strings.Join(problems, "; ")})
}

// checkShares is check for what was shown of the shares of loads. It is not ok where one of them is not enforced.
func (s *show) checkShares(what string, of []*load, problems ...string) {
	var shares []granted
	for _, l := range of {
		shares = append(shares, l.granted())
	}
	s.note(judge(what, s.level, shares, problems))
}

func (s *show) note(r result) {
	s.results = append(s.results, r)
	if r.why == "" {
		say("   -> %s\n", r.said())
	} else {
		say("   -> %s: %s\n", r.said(), r.why)
	}
}

// sum prints a line per thing shown and reports whether all held.
func (s *show) sum() bool {
	all := true
	say("What was shown:")
	for _, r := range s.results {
		all = all && r.word == wordOK
		what := r.what
		if r.level != "" {
			what += " (level " + string(r.level) + ")"
		}
		say("  %-6s  %s", r.word, what)
		if r.why != "" {
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
	}
	s.level = levelOf(first)
	say("%d x %s; shares have level %q: %s.\n", s.gpus, first.GPUs[0].Model, s.level, s.level.means())
	if !s.level.enforced() {
		s.note(result{what: "shares are enforced", word: wordUnenforced, why: strings.Join(first.Warnings, "; ")})
		return nil
	}
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
