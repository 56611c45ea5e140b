// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"sync"
	"time"
)

const (
	// beatEvery is how often the pulse looks whether this process runs.
	beatEvery = 100 * time.Millisecond
	// stalled is the gap between two beats that counts: half of the time after which container runtimes drop an
	// NRI plugin that does not answer.
	stalled = time.Second
	// settled is how long after a gap what this process knows of others counts again.
	settled = time.Second
)

// pulse notices that this process did not run for a while: it was stopped, or starved of CPU, or the machine slept.
// What it knows of its connections is then old. The event that one was closed may arrive later than a question that
// depends on it.
type pulse struct {
	now func() time.Duration // since some start, by a clock that goes on during a stop

	mu            sync.Mutex
	last, resumed time.Duration
}

func newPulse() *pulse {
	start := time.Now()
	return &pulse{now: func() time.Duration { return time.Since(start) }, resumed: -settled}
}

// run beats until ctx ends.
func (p *pulse) run(ctx context.Context) error {
	t := time.NewTicker(beatEvery)
	defer t.Stop()
	for {
		p.beat()
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
	}
}

// beat takes note of the time, and returns how long what is known is to be doubted yet.
func (p *pulse) beat() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if now-p.last > stalled {
		p.resumed = now
	}
	p.last = now
	return settled - (now - p.resumed)
}

// steady waits until this process has run without a gap for long enough, or ctx ends, which is the error.
func (p *pulse) steady(ctx context.Context) error {
	for {
		doubt := p.beat()
		if doubt <= 0 {
			return nil
		}
		t := time.NewTimer(doubt)
		select {
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		case <-t.C:
		}
	}
}
