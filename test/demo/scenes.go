// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// shares are the fractions that the demo requests, in units of about 1/79 of a GPU. Their order is one that a careless
// choice would scatter. They add up to a little less than three GPUs.
func (s *show) shares() []int {
	if s.gpus < 4 {
		return []int{10, 20, 8, 12}
	}
	return []int{40, 10, 20, 8, 30, 39, 20, 10, 16, 12, 30}
}

// packing starts many fractions and looks on how many GPUs they came to lie.
func (s *show) packing(ctx context.Context) error {
	shares := s.shares()
	say("1. %d processes request shares:  kerf run --memory %s --name a1 -- gpuload ... and so on", len(shares),
		s.people(shares[0]))
	sum := 0
	for i, n := range shares {
		sum += n
		l, err := s.run(ctx, fmt.Sprintf("a%d", i+1), []string{"--memory", s.amount(n)}, "--alloc", s.amount(n/2),
			"--hold", "10m")
		if err != nil {
			return err
		}
		if !l.running() {
			return fmt.Errorf("a%d ended with %d: %s", i+1, l.code, l.errs.String())
		}
	}
	st, err := s.status(ctx)
	if err != nil {
		return err
	}
	used := map[string]bool{}
	for _, g := range st.Grants {
		for _, id := range g.GPUs {
			used[id] = true
		}
	}
	fewest := (sum + 78) / 79
	say("   %d grants of %s together lie on %d GPUs; fewer than %d is impossible.", len(st.Grants), s.people(sum),
		len(used), fewest)
	var problems []string
	if len(st.Grants) != len(shares) {
		problems = append(problems, fmt.Sprintf("%d grants of %d", len(st.Grants), len(shares)))
	}
	if len(used) != fewest {
		problems = append(problems, fmt.Sprintf("%d GPUs where %d are enough", len(used), fewest))
	}
	s.checkShares(fmt.Sprintf("%d shares packed on %d of %d GPUs", len(shares), len(used), s.gpus), s.loads,
		problems...)
	return nil
}

// size asks what a program sees as its GPU.
func (s *show) size(ctx context.Context) error {
	if !s.level.rejects() {
		say("2. (left out: at level %s a program sees the whole GPU)\n", s.level)
		return nil
	}
	say("2. What a program with %s sees:  kerf run --memory %s --percent 10 -- gpuload", s.people(10), s.people(10))
	l, err := s.run(ctx, "sees", []string{"--memory", s.amount(10), "--percent", "10"}, "--alloc", s.amount(1))
	if err != nil {
		return err
	}
	if _, err := l.wait(ctx); err != nil {
		return err
	}
	say("   its GPU has %s", amountOf(l.report.Total))
	var problems []string
	if want := 10 * s.unit; l.report.Total != want {
		problems = append(problems, fmt.Sprintf("total memory %d, not the %d of the cap", l.report.Total, want))
	}
	s.checkShares("a program sees its share as the GPU's memory", []*load{l}, problems...)
	return nil
}

// greedy lets one process ask for more than its cap while neighbors run.
func (s *show) greedy(ctx context.Context) error {
	say("3. A greedy one has %s and takes 14 in steps of 1:  kerf run --memory %s -- gpuload --alloc %s --step %s",
		s.people(10), s.people(10), s.people(14), s.people(1))
	l, err := s.run(ctx, "greedy", []string{"--memory", s.amount(10)}, "--alloc", s.amount(14), "--step", s.amount(1),
		"--hold", s.level.patience())
	if err != nil {
		return err
	}
	code, err := l.wait(ctx)
	if err != nil {
		return err
	}
	var problems []string
	if s.level.rejects() {
		say("   it got %s, then %s, and ended with status %d", amountOf(l.report.Allocated), l.report.Error, code)
		problems = s.rejectedAt(l, code, 10)
	} else {
		say("   it ended with status %d", code)
		if code != killed {
			problems = []string{"it was not killed above its cap"}
		}
	}
	problems = append(problems, s.stillRunning()...)
	s.checkShares("a greedy process is "+s.level.fate()+" at its cap while its neighbours run on", []*load{l},
		problems...)
	return nil
}

// rejectedAt says how a load differs from one whose memory above n units was rejected.
func (s *show) rejectedAt(l *load, code, n int) []string {
	var problems []string
	if code != refused || l.report.Error != "CUDA_ERROR_OUT_OF_MEMORY" {
		problems = append(problems, "it was not rejected")
	}
	if units := uint64(n); l.report.Allocated > units*s.unit || l.report.Allocated < (units-2)*s.unit {
		problems = append(problems, fmt.Sprintf("it got %d bytes of a cap of %d", l.report.Allocated, units*s.unit))
	}
	return problems
}

// living is the number of workloads that run.
func (s *show) living() int {
	n := 0
	for _, l := range s.loads {
		if l.running() {
			n++
		}
	}
	return n
}

// stillRunning names the workloads of the first scene that have ended.
func (s *show) stillRunning() []string {
	var gone []string
	for _, l := range s.loads {
		if strings.HasPrefix(l.name, "a") && !l.running() {
			gone = append(gone, fmt.Sprintf("%s ended with %d", l.name, l.code))
		}
	}
	return gone
}

// family forks: the cap is the cgroup's, not each process's.
func (s *show) family(ctx context.Context) error {
	if !s.level.rejects() {
		say("4. (left out: at level %s only the sum is looked at, after the fact)\n", s.level)
		return nil
	}
	say("4. Four processes in one grant of %s, each requesting 5:  kerf run --memory %s -- gpuload --alloc %s --fork 4",
		s.people(12), s.people(12), s.people(5))
	l, err := s.run(ctx, "family", []string{"--memory", s.amount(12)}, "--alloc", s.amount(5), "--step", s.amount(1),
		"--fork", "4", "--hold", "5s")
	if err != nil {
		return err
	}
	st, err := s.status(ctx)
	if err != nil {
		return err
	}
	g, _ := st.grant("family")
	code, err := l.wait(ctx)
	if err != nil {
		return err
	}
	var problems []string
	if g.Used != nil {
		say("   together they hold %s of %s", amountOf(*g.Used), amountOf(g.Memory))
	}
	if g.Used == nil || *g.Used > g.Memory {
		problems = append(problems, "together they hold more than the cap, or it is not known")
	}
	if code != refused {
		problems = append(problems, fmt.Sprintf("status %d: none of them was rejected", code))
	}
	s.checkShares("processes that fork share one cap", []*load{l}, problems...)
	return nil
}

// whole takes a GPU for itself.
func (s *show) whole(ctx context.Context) error {
	if s.gpus < 2 {
		return nil
	}
	say("5. A whole GPU:  kerf run --gpus 1 -- gpuload --alloc %s", s.people(60))
	// of the programs before, which have given their GPU back a moment after their end
	if err := s.settle(ctx); err != nil {
		return err
	}
	if _, err := s.run(ctx, "whole", []string{"--gpus", "1"}, "--alloc", s.amount(60), "--hold", "10m"); err != nil {
		return err
	}
	st, err := s.status(ctx)
	if err != nil {
		return err
	}
	g, ok := st.grant("whole")
	if !ok {
		s.check("a whole GPU", "no such grant")
		return nil
	}
	var problems []string
	if g.Level != "exclusive" || len(g.GPUs) != 1 {
		problems = append(problems, fmt.Sprintf("level %s on %d GPUs", g.Level, len(g.GPUs)))
	}
	for _, other := range st.Grants {
		if other.ID != g.ID && slices.Contains(other.GPUs, g.GPUs[0]) {
			problems = append(problems, other.Name+" is on the same GPU")
		}
	}
	say("   level %s, no other grant on it", g.Level)
	s.check("a whole GPU is exclusive", problems...)
	return nil
}

// noRoom asks for what cannot be had.
func (s *show) noRoom(ctx context.Context) error {
	say("6. More than any GPU has, and more GPUs than are empty:")
	var problems []string
	for _, ask := range [][]string{{"--memory", s.people(100)}, {"--gpus", fmt.Sprint(s.gpus)}} {
		l, err := s.run(ctx, "toobig", ask)
		if err != nil {
			return err
		}
		code, err := l.wait(ctx)
		if err != nil {
			return err
		}
		text := strings.TrimSpace(l.errs.String())
		say("   $ kerf run %s -- gpuload          (status %d)\n%s", strings.Join(ask, " "), code, indent(text))
		if code != 125 || !strings.Contains(text, "GPU 0") {
			problems = append(problems, strings.Join(ask, " ")+" was not rejected with the reason per GPU")
		}
	}
	s.check("a request that does not fit is rejected with the reason", problems...)
	return nil
}

// noLevel demands more than the machine can give.
func (s *show) noLevel(ctx context.Context) error {
	say("7. A level that a share cannot have here:  kerf run --memory %s --min-enforcement hardware -- gpuload",
		s.people(1))
	l, err := s.run(ctx, "strict", []string{"--memory", s.amount(1), "--min-enforcement", "hardware"})
	if err != nil {
		return err
	}
	code, err := l.wait(ctx)
	if err != nil {
		return err
	}
	say("%s", indent(strings.TrimSpace(l.errs.String())))
	var problems []string
	if code != 125 {
		problems = append(problems, fmt.Sprintf("status %d", code))
	}
	s.check("a level that is not available is rejected, not lowered", problems...)
	return nil
}

func indent(text string) string { return "   | " + strings.ReplaceAll(text, "\n", "\n   | ") }

// amountOf is a number of bytes for people.
func amountOf(b uint64) string {
	if b%gib == 0 {
		return fmt.Sprintf("%d GiB", b/gib)
	}
	return fmt.Sprintf("%.1f GiB", float64(b)/gib)
}
