// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/sim/wire"
)

// sliced reports whether clients use the GPU in time slices.
func (g *gpu) sliced() bool { return g.hw.Model.Costs.Slice > 0 }

// pass lets time pass on a GPU, and takes the samples that are due.
func (g *gpu) pass(now time.Duration) {
	for g.ran < now {
		next := now
		if !g.idle() {
			next = min(now, g.ran+samplePeriod)
		}
		for _, e := range g.engines {
			e.run(next)
			e.forget()
		}
		g.sample(next)
		g.ran = next
	}
	g.sample(now)
}

func (g *gpu) idle() bool {
	for _, e := range g.engines {
		if !e.idle() {
			return false
		}
	}
	return true
}

// spans are all work of which is known when it runs.
func (g *gpu) spans() []span {
	all := slices.Concat(g.busy.spans, g.lanes.spans)
	for _, e := range g.engines {
		all = append(all, e.spans...)
	}
	return all
}

// stop ends the work of a client.
func (g *gpu) stop(id ClientID, now time.Duration) {
	g.pass(now)
	g.busy.cancel(id, now)
	g.lanes.end(id, now)
	for _, e := range g.engines {
		e.drop(id)
	}
}

// engineOf is where a client's work runs: where the first of it ran.
func (g *gpu) engineOf(c *client, in *usage) *engine {
	if c.engine == nil {
		id := uint64(in.part)<<32 | in.ci // #nosec G115 -- an index
		if g.engines[id] == nil {
			g.engines[id] = &engine{of: g, now: g.ran, threads: g.hw.Model.SMs * g.hw.Model.ThreadsPerSM}
		}
		c.engine = g.engines[id]
	}
	return c.engine
}

func (g *gpu) kernel(c *client, in *usage, need uint64, d, after, now time.Duration) (time.Duration, error) {
	e := g.engineOf(c, in)
	k := e.clockOf(c.holder())
	if max(after, end(k.kernels))-k.at(now) > maxQueue {
		return 0, wire.Insufficient
	}
	return k.add(work{need: need, client: c.id, pid: c.pid}, d, after, now, e.threads), nil
}

func (g *gpu) copy(c *client, in *usage, d, after, now time.Duration) (time.Duration, error) {
	k := g.engineOf(c, in).clockOf(c.holder())
	if max(after, end(k.copies))-k.at(now) > maxQueue {
		return 0, wire.Insufficient
	}
	return k.copy(work{client: c.id, pid: c.pid}, d, after, now), nil
}

// Time is a client's clock, and what is known of one of its moments.
type Time struct {
	Clock time.Duration
	// Soonest is the earliest real time at which the clock can pass that moment. Passed is when it did; 0: not yet.
	Soonest, Passed time.Duration
}

// Clock reads the clock by which a client's launches end. It stands still while others have their turn. Without time
// slices it is real time. Errors: NotFound, Lost, ServerGone.
func (m *Model) Clock(id ClientID, at, now time.Duration) (Time, error) {
	c, err := m.client(id)
	if err != nil {
		return Time{}, err
	}
	c.gpu.pass(now)
	t := Time{Clock: now, Soonest: at, Passed: at}
	if c.engine != nil {
		e := c.engine
		k := e.clockOf(c.holder())
		t = Time{Clock: k.at(now), Soonest: e.soonest(k, at), Passed: k.passed(at)}
	}
	if at > t.Clock {
		t.Passed = 0
	} else {
		t.Soonest = t.Passed
	}
	return t, nil
}

// Sliced reports whether clients of a GPU have clocks that differ from real time.
func (m *Model) Sliced(index int) bool {
	return index >= 0 && index < len(m.gpus) && m.gpus[index].sliced()
}
