// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/sim/machine"
)

// engine is a GPU, or a MIG compute instance, that clients use in turn. The kernels of one client run for a time slice,
// then those of the next one. Copies wait for no turn: the copies of all clients share the bandwidth.
type engine struct {
	of      *gpu
	threads uint64        // that run at the same time.
	now     time.Duration // until when it has run.
	clocks  []*clock      // in the order of their turns.
	turn    *clock        // whose turn it is; nil: of a client that is gone, or of none.
	last    ClientID      // who had the last turn; 0: none.
	working bool          // the client whose turn it is has kernels.
	ready   time.Duration // from when on they run.
	until   time.Duration // the end of the slice.
	spans   []span        // what has run.
}

func (e *engine) costs() machine.Costs { return e.of.hw.Model.Costs }

func (e *engine) slice() time.Duration { return e.of.slice.of(e.costs().Slice) }

// clockOf is the clock of a client, which it gets with its first work.
func (e *engine) clockOf(id ClientID) *clock {
	for _, c := range e.clocks {
		if c.id == id {
			return c
		}
	}
	c := &clock{id: id}
	e.clocks = append(e.clocks, c)
	return c
}

// drop ends the work of a client, and its clock.
func (e *engine) drop(id ClientID) {
	for _, c := range e.clocks {
		c.cancel(id)
	}
	e.clocks = slices.DeleteFunc(e.clocks, func(c *clock) bool { return c.id == id })
	if e.turn != nil && e.turn.id == id {
		e.turn, e.working = nil, false
	}
}

func (e *engine) idle() bool {
	return !slices.ContainsFunc(e.clocks, func(c *clock) bool { return !c.idle(e.now) })
}

// run lets time pass.
func (e *engine) run(now time.Duration) {
	if e.idle() {
		e.now, e.working = max(e.now, now), false
		return
	}
	for e.now < now {
		e.decide()
		e.step(e.edge(now))
	}
	for _, c := range e.clocks {
		c.done(e.now)
	}
}

// wants reports whether a client has kernels that could run now.
func (e *engine) wants(c *clock) bool { return len(active(c.kernels, c.at(e.now))) > 0 }

// following is the client whose turn is after that of c, which may be c; nil: none has kernels.
func (e *engine) following(c *clock) *clock {
	n := len(e.clocks)
	first := slices.Index(e.clocks, c) + 1 // 0 for a client that is gone
	for i := range n {
		if other := e.clocks[(first+i)%n]; e.wants(other) {
			return other
		}
	}
	return nil
}

// decide says whose turn it is from now on.
func (e *engine) decide() {
	next := e.following(e.turn)
	wants := e.turn != nil && e.wants(e.turn)
	switch {
	case next == nil:
		e.working = false
	case wants && !e.working, wants && next == e.turn && e.now >= e.until:
		e.working, e.until = true, max(e.now, e.ready)+e.slice()
	case wants && e.now < e.until:
	default:
		e.ready = e.now
		if e.last != 0 && e.last != next.id {
			e.ready += e.costs().Switch
		}
		if wants {
			e.ready += e.costs().Preempt
		}
		e.turn, e.last, e.working, e.until = next, next.id, true, e.ready+e.slice()
	}
}

// stalled reports whether a client waits for its turn.
func (e *engine) stalled(c *clock) bool {
	return e.wants(c) && (c != e.turn || e.now < e.ready)
}

// copying are the copies of a client that move now.
func (e *engine) copying(c *clock) []work {
	if e.stalled(c) {
		return nil
	}
	return active(c.copies, c.at(e.now))
}

// sharers is how many clients share the bandwidth.
func (e *engine) sharers() (n time.Duration) {
	for _, c := range e.clocks {
		if len(e.copying(c)) > 0 {
			n++
		}
	}
	return n
}

// edge is the next moment, at most now, at which anything changes.
func (e *engine) edge(now time.Duration) time.Duration {
	if e.working {
		for _, t := range []time.Duration{e.ready, e.until} {
			if t > e.now {
				now = min(now, t)
			}
		}
	}
	n := e.sharers()
	for _, c := range e.clocks {
		at, some := c.next(c.at(e.now))
		if !some || e.stalled(c) {
			continue
		}
		left := at - c.at(e.now)
		if len(e.copying(c)) > 0 {
			left *= n
		}
		now = min(now, e.now+left)
	}
	return now
}

// step lets time pass in which nothing changes.
func (e *engine) step(to time.Duration) {
	d, n := to-e.now, e.sharers()
	slower := map[*clock]time.Duration{}
	for _, c := range e.clocks {
		copying := e.copying(c)
		for _, w := range copying {
			e.note(w, to)
		}
		switch {
		case e.stalled(c):
			slower[c] = d
		case len(copying) > 0:
			slower[c] = d - d/n
		}
		if c == e.turn && e.now >= e.ready {
			for _, w := range active(c.kernels, c.at(e.now)) {
				e.note(w, to)
			}
		}
	}
	for c, lost := range slower {
		if lost > 0 {
			c.note(e.now)
			c.lag += lost
			c.note(to)
		}
	}
	e.now = to
}

// note adds what runs until to to the spans.
func (e *engine) note(w work, to time.Duration) {
	for i := len(e.spans) - 1; i >= 0 && i >= len(e.spans)-mpsClients; i-- {
		if s := &e.spans[i]; s.client == w.client && s.to >= e.now {
			s.to = max(s.to, to)
			return
		}
	}
	e.spans = append(e.spans, span{from: e.now, to: to, client: w.client, pid: w.pid})
}

// forget drops the spans that no reading looks at.
func (e *engine) forget() {
	if n := len(e.spans); n > mpsClients && e.spans[n/2].to < e.now-2*utilWindow {
		e.spans = slices.DeleteFunc(e.spans, func(s span) bool { return s.to < e.now-2*utilWindow })
	}
}

// soonest is the earliest moment at which a clock can pass v. One that waits gets its turn at the end of the other's
// work, or of its slice.
func (e *engine) soonest(c *clock, v time.Duration) time.Duration {
	from := e.now
	switch {
	case !e.stalled(c):
	case c == e.turn:
		from = e.ready
	case e.turn != nil && e.working:
		at := e.turn.at(e.now)
		left := max(0, end(active(e.turn.kernels, at))-at)
		from = max(e.now, min(max(e.now, e.ready)+left, e.until)) + e.costs().Switch
	}
	return from + max(0, v-c.at(e.now))
}
