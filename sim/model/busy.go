// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"math/bits"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/wire"
)

const (
	maxThreads  = 1024 // of a block
	launchCost  = 5 * time.Microsecond
	waveTime    = 10 * time.Microsecond // how long each thread runs when nothing else is asked for
	maxLaunch   = time.Hour
	maxQueue    = 24 * time.Hour
	utilWindow  = time.Second
	maxInterval = 1 << 16
	// bandwidth is how many bytes a GPU copies in a nanosecond.
	bandwidth sharing.Bytes = 1000
)

// busy is the time for which a GPU has work: intervals in order that do not overlap.
type busy struct {
	spans []span
}

type span struct {
	from, to time.Duration
	client   ClientID
	pid      int
}

// free is when the last of the work will be done.
func (b *busy) free() time.Duration {
	if len(b.spans) == 0 {
		return 0
	}
	return b.spans[len(b.spans)-1].to
}

// add appends work and returns when it will be done.
func (b *busy) add(c *client, d, now time.Duration) time.Duration {
	b.prune(now)
	from := max(now, b.free())
	if n := len(b.spans); n > 0 && b.spans[n-1].to == from && (b.spans[n-1].client == c.id || n >= maxInterval) {
		b.spans[n-1].to = from + d
	} else {
		b.spans = append(b.spans, span{from: from, to: from + d, client: c.id, pid: c.pid})
	}
	return from + d
}

// prune forgets what ended before the time that utilisation looks at, once that is half of all, so that
// each interval is moved about once.
func (b *busy) prune(now time.Duration) {
	i := 0
	for i < len(b.spans) && b.spans[i].to < now-utilWindow {
		i++
	}
	if i > len(b.spans)/2 {
		b.spans = append(b.spans[:0], b.spans[i:]...)
	}
}

// cancel ends a client's work now. Others keep the times that they were given.
func (b *busy) cancel(id ClientID, now time.Duration) {
	kept := b.spans[:0]
	for _, s := range b.spans {
		if s.client == id {
			s.to = min(s.to, now)
		}
		if s.to > s.from {
			kept = append(kept, s)
		}
	}
	b.spans = kept
}

// Kernel is a launch.
type Kernel struct {
	Context, Blocks, Threads uint64
	// Asked is how long it takes, 0: what the grid's size suggests.
	Asked time.Duration
	// After is the moment of the client's clock before which it does not begin.
	After time.Duration
}

// Run queues a kernel and returns when it will be done by the client's clock, see Clock. Errors: Invalid (no threads or
// too many, longer than an hour), NotFound (client or context), Insufficient (more than a day of work is queued), Lost.
func (m *Model) Run(id ClientID, k Kernel, now time.Duration) (time.Duration, error) {
	c, err := m.client(id)
	if err != nil {
		return 0, err
	}
	in, ok := c.contexts[k.Context]
	if !ok {
		return 0, wire.NotFound
	}
	hi, all := bits.Mul64(k.Blocks, k.Threads)
	if all == 0 || hi != 0 || k.Threads > maxThreads || k.Asked < 0 || k.Asked > maxLaunch {
		return 0, wire.Invalid
	}
	d := k.Asked
	if d == 0 {
		waves := (all-1)/c.threads() + 1
		if waves > uint64(maxLaunch/waveTime) {
			return 0, wire.Invalid
		}
		d = launchCost + time.Duration(waves)*waveTime // #nosec G115 -- bounded above
	}
	c.gpu.pass(now) // before what samples look at is forgotten
	if c.gpu.sliced() {
		return c.gpu.kernel(c, in, min(all, c.threads()), d, k.After, now)
	}
	return c.gpu.queue(c, d, now)
}

// Copy is Run for a copy within the GPU's memory.
func (m *Model) Copy(id ClientID, context uint64, bytes sharing.Bytes, after, now time.Duration) (time.Duration,
	error) {
	c, err := m.client(id)
	if err != nil {
		return 0, err
	}
	in, ok := c.contexts[context]
	if !ok {
		return 0, wire.NotFound
	}
	if bytes/bandwidth > sharing.Bytes(maxLaunch) {
		return 0, wire.Invalid
	}
	d := time.Duration(bytes / bandwidth) // #nosec G115 -- bounded above
	c.gpu.pass(now)
	if c.gpu.sliced() {
		return c.gpu.copy(c, in, d, after, now)
	}
	return c.gpu.queue(c, d, now)
}

// queue lets work run when all that was queued before is done, or all of an MPS client.
func (g *gpu) queue(c *client, d, now time.Duration) (time.Duration, error) {
	switch {
	case g.freeFor(c)-now > maxQueue:
		return 0, wire.Insufficient
	case c.mps != nil:
		return g.lanes.add(c, d, now), nil
	}
	return g.busy.add(c, d, now), nil
}

// Utilization returns the percent of the last second in which the GPU, and its memory, had work; the memory's
// is taken to be half of the GPU's. Errors: Invalid, Lost.
func (m *Model) Utilization(index int, now time.Duration) (gpuPercent, memoryPercent int, err error) {
	g, err := m.gpu(index)
	if err != nil {
		return 0, 0, err
	}
	g.pass(now)
	p := g.util
	if p == AutoUtil {
		p = g.percent(now, utilWindow)
	}
	return p, p / 2, nil
}
