// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"slices"
	"time"
)

// lanes is the work of MPS clients, which run at the same time: each waits for its own work alone.
type lanes struct {
	spans []span
	free  map[ClientID]time.Duration
}

func newLanes() lanes { return lanes{free: map[ClientID]time.Duration{}} }

// add appends work of a client and returns when it will be done.
func (l *lanes) add(c *client, d, now time.Duration) time.Duration {
	id := c.id
	l.prune(now)
	from := max(now, l.free[id])
	l.free[id] = from + d
	for i := len(l.spans) - 1; i >= 0 && i >= len(l.spans)-mpsClients; i-- {
		if s := &l.spans[i]; s.client == id && s.to == from {
			s.to = from + d
			return from + d
		}
	}
	l.spans = append(l.spans, span{from: from, to: from + d, client: id, pid: c.pid})
	return from + d
}

// prune forgets what ended before the time that utilisation looks at, once that may be half of all.
func (l *lanes) prune(now time.Duration) {
	if n := len(l.spans); n < mpsClients || l.spans[n/2].to >= now-utilWindow {
		return
	}
	l.spans = slices.DeleteFunc(l.spans, func(s span) bool { return s.to < now-utilWindow })
}

// end ends a client's work now.
func (l *lanes) end(id ClientID, now time.Duration) {
	for i := range l.spans {
		if s := &l.spans[i]; s.client == id {
			s.to = max(s.from, min(s.to, now))
		}
	}
	delete(l.free, id)
}

// freeFor is when a client's next launch would begin.
func (g *gpu) freeFor(c *client) time.Duration {
	if c.mps != nil {
		return g.lanes.free[c.id]
	}
	return g.busy.free()
}

// threads is how many a client's launches may run at once.
func (c *client) threads() uint64 {
	all := c.gpu.hw.Model.SMs * c.gpu.hw.Model.ThreadsPerSM
	if c.mps == nil {
		return all
	}
	return max(1, c.gpu.hw.Model.SMs*c.mps.percent/100) * c.gpu.hw.Model.ThreadsPerSM
}

// percent is the share of a window, which ends now, in which any work ran.
func (g *gpu) percent(now, window time.Duration) int {
	all := g.spans()
	slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	var sum time.Duration
	seen := now - window
	for _, s := range all {
		if from, to := max(s.from, seen), min(s.to, now); to > from {
			sum += to - from
			seen = to
		}
	}
	return int(sum * 100 / window)
}
