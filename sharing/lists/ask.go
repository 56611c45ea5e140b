// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package lists

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// reader reads process lists, one call per GPU at a time. All who ask for the same list share the next call: an answer
// is always to a call that began no earlier than the question.
type reader struct {
	mu    sync.Mutex
	lines map[lineKey]*line
}

// lineKey names the list of a GPU. Lists of an earlier driver are others.
type lineKey struct {
	driver Driver
	gpu    sharing.GPURef
}

// line is the calls for one list. It ends without callers.
type line struct {
	asking int
	// turn has a token while a call is in the driver.
	turn chan struct{}
	// running is the call in the driver, and next the one that has not begun; nil for none.
	running, next *call
}

// call is one call of the driver. answer, and whether its caller left, are set once done is closed.
type call struct {
	began  time.Time
	done   chan struct{}
	answer Answer
	left   bool
}

// read makes a call of the driver, which honors the context, or shares that of another caller.
func (r *reader) read(ctx context.Context, key lineKey, do func() Answer) Answer {
	asked := time.Now()
	n := r.enter(key)
	defer r.leave(key, n)
	for {
		c, first := r.join(n, asked)
		if first {
			r.run(ctx, n, c, do)
			return c.answer
		}
		select {
		case <-c.done:
			if !c.left || ctx.Err() != nil {
				return c.answer
			}
		case <-ctx.Done():
			return Answer{Err: waited(ctx)}
		}
	}
}

func (r *reader) enter(key lineKey) *line {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.lines[key]
	if n == nil {
		if n = (&line{turn: make(chan struct{}, 1)}); r.lines == nil {
			r.lines = map[lineKey]*line{}
		}
		r.lines[key] = n
	}
	n.asking++
	return n
}

func (r *reader) leave(key lineKey, n *line) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n.asking--; n.asking == 0 {
		delete(r.lines, key)
	}
}

// join returns the call that answers a question. first is true if the caller has to make it.
func (r *reader) join(n *line, asked time.Time) (c *call, first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case n.running != nil && !n.running.began.Before(asked):
		return n.running, false
	case n.next != nil:
		return n.next, false
	}
	n.next = &call{done: make(chan struct{})}
	return n.next, true
}

// run makes a call once the one before it has ended. If the context ends first, others that wait for it ask again.
func (r *reader) run(ctx context.Context, n *line, c *call, do func() Answer) {
	defer close(c.done)
	select {
	case n.turn <- struct{}{}:
		defer func() { <-n.turn }()
		r.set(func() { n.next, n.running, c.began = nil, c, time.Now() })
		c.answer = do()
		r.set(func() { n.running = nil })
	case <-ctx.Done():
		r.set(func() { n.next = nil })
		c.answer.Err = waited(ctx)
	}
	c.left = c.answer.Err != nil && ctx.Err() != nil
}

func (r *reader) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

func waited(ctx context.Context) error {
	return fmt.Errorf("wait for an earlier call: %w (%w)", context.Cause(ctx), sharing.ErrUnavailable)
}
