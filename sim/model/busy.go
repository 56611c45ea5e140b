// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"math/bits"
	"time"

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

// Launch queues work and returns when it will be done. asked is how long it takes, 0 for what the grid's
// size suggests. Errors: Invalid (no threads or too many, longer than an hour), NotFound (client or context),
// Insufficient (more than a day of work is queued), Lost.
func (m *Model) Launch(id ClientID, context, blocks, threads uint64, asked, now time.Duration) (time.Duration, error) {
	c, err := m.client(id)
	if err != nil {
		return 0, err
	}
	if _, ok := c.contexts[context]; !ok {
		return 0, wire.NotFound
	}
	hi, all := bits.Mul64(blocks, threads)
	if all == 0 || hi != 0 || threads > maxThreads || asked < 0 || asked > maxLaunch {
		return 0, wire.Invalid
	}
	d := asked
	if d == 0 {
		waves := (all-1)/c.threads() + 1
		if waves > uint64(maxLaunch/waveTime) {
			return 0, wire.Invalid
		}
		d = launchCost + time.Duration(waves)*waveTime // #nosec G115 -- bounded above
	}
	if c.gpu.freeFor(c)-now > maxQueue {
		return 0, wire.Insufficient
	}
	c.gpu.sample(now) // before what it looks at is forgotten
	if c.mps != nil {
		return c.gpu.lanes.add(c, d, now), nil
	}
	return c.gpu.busy.add(c, d, now), nil
}

// Utilization returns the percent of the last second in which the GPU, and its memory, had work; the memory's
// is taken to be half of the GPU's. Errors: Invalid, Lost.
func (m *Model) Utilization(index int, now time.Duration) (gpuPercent, memoryPercent int, err error) {
	g, err := m.gpu(index)
	if err != nil {
		return 0, 0, err
	}
	p := g.util
	if p == AutoUtil {
		p = g.percent(now, utilWindow)
	}
	return p, p / 2, nil
}
