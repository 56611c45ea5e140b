// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package guard compares what grants use with their caps, and acts on those that are over: it warns, kills or evicts.
//
// It kills a process only if the process certainly belongs to the grant that is over its cap, or to no grant. It checks
// that again, with a new view of the node, while it holds the process.
package guard

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/reactive"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/lists"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
	"github.com/kerf-gpu/kerf/sharing/node/notify"
)

// Cgroups finds the cgroups of processes and grants. Errors are those of cgroup.Hierarchy.
type Cgroups interface {
	OfProcess(pid int) (string, error)
	Open(dir string, inode uint64) (cgroup.Group, error)
}

// Observer counts samples and kills.
type Observer interface {
	Watched(took time.Duration, missed int)
	OverCap(delay time.Duration, by sharing.Bytes)
	Killed(reason string, err error)
}

// Options are what a guard works with.
type Options struct {
	Log        *slog.Logger
	Lists      *lists.Lists
	Cgroups    Cgroups
	Notify     *notify.Notifier
	Conditions *conditions.Set
	Observer   Observer
	// Agents is the cgroup below which each agent of this machine has the cgroup Own; empty if only this agent uses the
	// machine.
	Agents, Own string
	View        func() View
	// Changed returns a channel that is closed at the next change of the node. Announce reports one.
	Changed  func() <-chan struct{}
	Announce func()
}

// Guard enforces the caps of grants that no other backend enforces. Make it with New. Its findings are safe for
// concurrent use; Run and Check are not.
type Guard struct {
	Findings

	opt  Options
	core *reactive.Watch
	// schedule counts the samples that are missed.
	schedule reactive.Schedule
	// denied are the processes that the last check was to kill and the agent may not, with the cause. deniedBefore are
	// those of the check before it.
	denied, deniedBefore map[reactive.Process]string
	// evictions run next to the loop: the API server may be slow.
	evictions errgroup.Group
}

// New makes a guard that has seen nothing yet.
func New(opt Options) *Guard {
	g := &Guard{opt: opt, core: reactive.New(), denied: map[reactive.Process]string{}}
	g.evictions.SetLimit(mostEvictions)
	return g
}

// Run checks as often as the last sample demands, and not at all while there is nothing to watch. It ends with ctx.
func (g *Guard) Run(ctx context.Context) error {
	defer g.Wait()
	for {
		changed := g.opt.Changed() // of before the check, so that none is missed
		next := g.Check(ctx)
		var again <-chan time.Time
		if next > 0 {
			again = time.After(next)
		}
		if next != 0 && next != reactive.Idle {
			changed = nil // the next check comes soon enough
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again:
		case <-changed:
			// A busy node changes many times in a moment.
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(reactive.Fast):
			}
		}
	}
}

// Wait waits for the evictions that the guard asked for.
func (g *Guard) Wait() { _ = g.evictions.Wait() } // they log their errors

// Check takes one sample, judges it and acts. It returns when the next one is due; 0 if a change of the node has to
// come first.
func (g *Guard) Check(ctx context.Context) time.Duration {
	start := time.Now()
	missed := g.schedule.Missed(start)
	v := g.opt.View()
	s, unclear := g.sample(ctx, v)
	if ctx.Err() != nil {
		return 0 // an answer that comes while the agent stops is not the driver's
	}
	s.Cost = time.Since(start)
	d := g.core.Step(time.Now(), s)
	g.denied, g.deniedBefore = map[reactive.Process]string{}, g.denied
	for _, verdict := range d.Verdicts {
		g.act(ctx, verdict)
	}
	g.report(v, s, unclear, d.Standings)
	g.schedule.Plan(time.Now(), d.Next)
	if d.Next > 0 {
		g.opt.Observer.Watched(time.Since(start), missed)
	}
	return d.Next
}

// report keeps the findings and shows warnings. unclear says why the usage of grants cannot be read.
func (g *Guard) report(v View, s reactive.Sample, unclear map[reactive.GrantID]string, standings []reactive.Standing) {
	lost, over := map[ledger.GrantID]string{}, map[string]string{}
	for _, gpu := range s.GPUs {
		for _, u := range gpu.Uses {
			if u.Escaped {
				lost[ledger.GrantID(u.Grant)] = fmt.Sprintf(
					"process %d does not use the MPS daemon of its grant on GPU %s, so nothing limits it", u.PID,
					gpu.ID)
			}
		}
	}
	for i, st := range standings {
		switch one, _ := v.grant(ledger.GrantID(st.Grant)); {
		case !st.Known && one.onlyWatched():
			why := cmp.Or(unclear[st.Grant], "the driver does not tell how much its processes hold of GPU "+
				st.GPU.String())
			lost[ledger.GrantID(st.Grant)] = why + ", so nothing holds it there"
		case st.Over:
			c := s.Caps[i] // the standings are in the order of the caps
			over[string(st.Grant)] = fmt.Sprintf("grant %s holds more than its %s of GPU %s (policy: %s)", st.Grant,
				c.Memory, st.GPU, actionName(st.Action))
		}
	}
	g.opt.Conditions.Set(conditions.Kill, strings.Join(slices.Sorted(maps.Values(g.denied)), "; "))
	g.opt.Conditions.Replace(conditions.Over, over)
	g.opt.Conditions.Retain(conditions.Evict, over)
	if g.note(v, s.Caps, standings, lost) {
		g.opt.Announce()
	}
}

func actionName(a reactive.Action) string {
	switch a {
	case reactive.Kill:
		return "kill"
	case reactive.Evict:
		return "evict"
	case reactive.Warn:
	}
	return "warn"
}
