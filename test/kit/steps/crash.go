// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/test/kit/bench"
	"github.com/kerf-gpu/kerf/test/kit/core"
)

func after(d time.Duration) <-chan time.Time { return time.After(d) }

// crash kills the agent while programs run in grants, starts it again, and looks for what is left at the end.
func crash(ctx context.Context, b *bench.Bench) error {
	a, err := b.StartAgent(ctx, crashPool)
	if err != nil {
		return err
	}
	defer a.Stop()
	var procs []*bench.Proc
	for i := range 3 {
		p, err := b.Start(a.Grant(fmt.Sprintf("g%d", i), "--memory", "2GiB"), b.Program("kitload"), "grow", "--step",
			"256MiB", "--alloc", "1GiB")
		if err != nil {
			return err
		}
		for range 4 {
			var l grown
			if err := p.Line(ctx, &l); err != nil {
				return err
			}
		}
		procs = append(procs, p)
	}
	before, groups, err := grants(ctx, a)
	if err != nil {
		return err
	}
	a.Kill()
	began := time.Now()
	if err := a.Start(ctx); err != nil {
		return err
	}
	b.Fact("new agent ready after", "%.2f s", time.Since(began).Seconds())
	now, _, err := grants(ctx, a)
	if err != nil {
		return err
	}
	running := 0
	for _, p := range procs {
		select {
		case <-p.Ended():
		default:
			running++
		}
	}
	b.Add(core.Is("crash-grants", slices.Equal(before, now) && running == len(procs) && len(now) == len(procs),
		"%d grants before, %d after, %d of %d programs run on", len(before), len(now), running, len(procs)))
	for _, p := range procs {
		p.End()
	}
	return leftovers(ctx, b, a, groups)
}

// grants are the names, caps and levels of all grants, sorted, and their cgroups.
func grants(ctx context.Context, a *bench.Agent) (list, groups []string, err error) {
	s, err := a.Status(ctx)
	for _, g := range s.Grants {
		list, groups = append(list, fmt.Sprintf("%s %d %s", g.Name, g.Memory, g.Level)), append(groups, g.Cgroup)
	}
	slices.Sort(list)
	return list, groups, err
}

// leftovers ends the agent and looks for the cgroups of its grants.
func leftovers(ctx context.Context, b *bench.Bench, a *bench.Agent, groups []string) error {
	if err := a.Idle(ctx); err != nil {
		b.Add(core.Is("crash-leftovers", false, "grants do not end: %v", err))
		return nil
	}
	a.Stop()
	left := 0
	for _, g := range groups {
		if bench.HasGroup(g) {
			left++
		}
	}
	b.Add(core.Is("crash-leftovers", left == 0 && len(groups) > 0, "%d of %d cgroups are left", left, len(groups)))
	return nil
}
