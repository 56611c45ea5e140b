// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// lane lets one call at a time into the driver, and keeps a call that hangs from taking others with it.
//
// A call whose caller has left (its context ended) stays in the lane until the driver returns. Once such a call is
// older than hangAfter it counts as hung: all callers get an error at once. Before that, others wait: a caller that
// cancels a call of normal length must not make the GPU look broken.
type lane struct {
	name      string
	hangAfter time.Duration
	turn      chan struct{} // holds one token while a call is in the driver

	mu   sync.Mutex
	hung bool          // implies that the token is taken
	hang chan struct{} // closed while hung
}

func newLane(name string, hangAfter time.Duration) *lane {
	return &lane{name: name, hangAfter: hangAfter, turn: make(chan struct{}, 1), hang: make(chan struct{})}
}

// flight is one call in the driver.
type flight struct {
	started  time.Time
	finished bool // guarded by the lane's mutex
}

// in runs fn in the lane. done is called when fn has returned, which may be after in has.
func in[T any](ctx context.Context, l *lane, done func(), fn func() (T, error)) (T, error) {
	var zero T
	if err := l.enter(ctx); err != nil {
		done()
		return zero, err
	}
	type result struct {
		value T
		err   error
	}
	f := &flight{started: time.Now()}
	out := make(chan result, 1) // room for the answer after the caller has left
	go func() {
		defer done()
		v, err := fn()
		l.leave(f)
		out <- result{v, err}
	}()
	select {
	case r := <-out:
		return r.value, r.err
	case <-ctx.Done():
		l.abandon(f)
		return zero, fmt.Errorf("wait for the driver on %s: %w (%w)", l.name, context.Cause(ctx),
			sharing.ErrUnavailable)
	}
}

func (l *lane) enter(ctx context.Context) error {
	l.mu.Lock()
	hang := l.hang
	l.mu.Unlock()
	select {
	case <-hang:
		return l.refusal()
	case <-ctx.Done():
		return fmt.Errorf("wait for the driver on %s: %w (%w)", l.name, context.Cause(ctx), sharing.ErrUnavailable)
	default:
	}
	select {
	case l.turn <- struct{}{}:
		return nil
	case <-hang:
		return l.refusal()
	case <-ctx.Done():
		return fmt.Errorf("wait for an earlier call on %s: %w (%w)", l.name, context.Cause(ctx), sharing.ErrUnavailable)
	}
}

func (l *lane) refusal() error {
	return fmt.Errorf("an earlier call on %s hangs in the driver: %w", l.name, sharing.ErrUnavailable)
}

// leave ends a call that came back from the driver.
func (l *lane) leave(f *flight) {
	l.mu.Lock()
	f.finished = true
	if l.hung {
		l.hung, l.hang = false, make(chan struct{})
	}
	l.mu.Unlock()
	<-l.turn
}

// abandon notes that no caller waits for f any more.
func (l *lane) abandon(f *flight) {
	mark := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !f.finished && !l.hung {
			l.hung = true
			close(l.hang)
		}
	}
	if rest := l.hangAfter - time.Since(f.started); rest > 0 {
		time.AfterFunc(rest, mark)
		return
	}
	mark()
}
