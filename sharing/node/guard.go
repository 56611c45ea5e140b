// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/reactive"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
)

// guard watches the leases that nothing but watching holds to their size, and the strangers where the pool
// wants them ended. Its loop alone uses it.
type guard struct {
	r    *Runtime
	core *reactive.Watch
	// schedule counts the samples that are missed.
	schedule reactive.Schedule
	// unclear are the leases of which the last look could not tell what they hold, with the reason.
	unclear map[reactive.LeaseID]string
	// denied are the processes that the last look was to kill and the agent may not, with what is in the way; deniedBefore are
	// those of the look before it.
	denied, deniedBefore map[reactive.Process]string
	// evictions run beside the loop: the API server may be slow, and the others are looked at meanwhile.
	evictions errgroup.Group
}

func newGuard(r *Runtime) *guard {
	return &guard{r: r, core: reactive.New(), unclear: map[reactive.LeaseID]string{}, denied: map[reactive.Process]string{}}
}

// guardLoop looks as often as what it sees demands, and not at all while there is nothing to watch.
func (r *Runtime) guardLoop(ctx context.Context) error {
	g := newGuard(r)
	g.evictions.SetLimit(mostEvictions)
	defer func() { _ = g.evictions.Wait() }() // what goes wrong was told
	for {
		changed := r.changed.wait() // of before the look, so that none is missed
		next := g.tick(ctx)
		var again <-chan time.Time
		if next > 0 {
			again = time.After(next)
		}
		if next != 0 && next != reactive.Idle {
			changed = nil // it looks soon enough
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again:
		case <-changed:
			// A node on which much happens at once changes many times in a moment.
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(reactive.Fast):
			}
		}
	}
}

// tick looks once, judges, and acts. It returns when to look again.
func (g *guard) tick(ctx context.Context) time.Duration {
	start := time.Now()
	missed := g.schedule.Missed(start)
	s := g.see(ctx)
	if ctx.Err() != nil {
		return 0 // what was seen while the agent stops is not the driver's word
	}
	s.Cost = time.Since(start)
	d := g.core.Step(time.Now(), s)
	g.denied, g.deniedBefore = map[reactive.Process]string{}, g.denied
	for _, v := range d.Verdicts {
		g.act(ctx, v)
	}
	g.tell(s, d.Standings)
	g.schedule.Plan(time.Now(), d.Next)
	if d.Next > 0 {
		g.r.opt.Observer.Watched(time.Since(start), missed)
	}
	return d.Next
}

// tell shows how the leases stand: level unknown where the driver does not tell their use, and a warning for
// each that is over its cap.
func (g *guard) tell(s reactive.Sample, standings []reactive.Standing) {
	g.r.mu.Lock()
	defer g.r.mu.Unlock()
	lost := map[ledger.ClaimID]string{}
	for _, gpu := range s.GPUs {
		for _, u := range gpu.Uses {
			if u.Escaped {
				lost[ledger.ClaimID(u.Lease)] = fmt.Sprintf("process %d does not use the MPS daemon of its grant on GPU %s, so nothing limits it", u.PID, gpu.ID)
			}
		}
	}
	over := map[string]string{}
	for i, st := range standings {
		switch {
		case !st.Known && g.r.held[ledger.ClaimID(st.Lease)].onlyWatched():
			why := cmp.Or(g.unclear[st.Lease], "the driver does not tell how much its processes hold of GPU "+string(st.GPU))
			lost[ledger.ClaimID(st.Lease)] = why + ", so nothing holds it there"
		case st.Over:
			c := s.Caps[i] // the standings are in the order of the caps
			over[string(st.Lease)] = fmt.Sprintf("grant %s holds more than its %s of GPU %s (policy: %s)", st.Lease, c.Memory, st.GPU, actionName(st.Action))
		}
	}
	changed := g.noteMPSExcess(standings)
	g.r.conditions.Set(conditions.Kill, strings.Join(slices.Sorted(maps.Values(g.denied)), "; "))
	g.r.conditions.Replace(conditions.Over, over)
	g.r.conditions.Keep(conditions.Evict, over)
	for _, gr := range g.r.ledger.Grants() {
		h, why := g.r.held[gr.Claim.ID], lost[g.r.speaker(gr)]
		if h != nil && h.watchLost != why {
			h.watchLost, changed = why, true
		}
	}
	if changed {
		g.r.changed.announce()
	}
}

// onlyWatched reports whether nothing but watching holds the lease by the choice of its backend; h may be nil.
func (h *holding) onlyWatched() bool { return h != nil && h.backend.Level() == sharing.LevelReactive }

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
