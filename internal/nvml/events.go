// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// Event is one critical fault of a GPU.
type Event struct {
	// GPU is empty when the driver did not say which one: then each may be meant.
	GPU sharing.GPUID
	// XID is NVIDIA's number for the fault.
	XID uint64
	// GI and CI are the MIG instance that the fault is on, nil for the whole GPU.
	GI, CI *uint32
}

const (
	eventRoom    = 64
	firstBackOff = time.Second
	lastBackOff  = 30 * time.Second
)

// eventLoop waits for faults in a goroutine of its own, which the first WaitEvent starts and Close ends.
type eventLoop struct {
	lib     *Library
	ctx     context.Context
	stop    context.CancelFunc
	backOff time.Duration // the first one
	out     chan delivery
	once    sync.Once
	wg      sync.WaitGroup

	// mu guards what follows. held counts those for whom no event set is to be; free is closed when there is none and
	// somebody holds; more is closed when nobody holds any more.
	mu         sync.Mutex
	held       int
	open       bool
	free, more chan struct{}
}

type delivery struct {
	ev  Event
	err error
}

func newEventLoop(l *Library) *eventLoop {
	ctx, stop := context.WithCancel(context.Background())
	return &eventLoop{lib: l, ctx: ctx, stop: stop, backOff: firstBackOff, out: make(chan delivery, eventRoom)}
}

func (e *eventLoop) join() { e.wg.Wait() }

// WaitEvent returns the next fault of any GPU that GPUs has found. Faults are collected from the first call
// on, so that none is lost between calls. Errors: the context's (it ended first), sharing.ErrUnsupported (no
// GPU tells faults; asking again is no use until GPUs has found another), sharing.ErrUnavailable and
// sharing.ErrLost (the driver cannot tell for now; asking again is right, and waits longer each time).
func (l *Library) WaitEvent(ctx context.Context) (Event, error) {
	if err := l.begin(); err != nil {
		return Event{}, fmt.Errorf("wait for gpu events: %w", err)
	}
	defer l.calls.Done()
	l.events.once.Do(func() { l.events.wg.Go(l.events.run) })
	select {
	case d := <-l.events.out:
		if d.err != nil {
			return Event{}, fmt.Errorf("wait for gpu events: %w", d.err)
		}
		return d.ev, nil
	case <-ctx.Done():
		return Event{}, fmt.Errorf("wait for gpu events: %w", context.Cause(ctx))
	case <-l.events.ctx.Done():
		return Event{}, fmt.Errorf("wait for gpu events: nvml is closed: %w", sharing.ErrUnavailable)
	}
}

// HoldEvents frees the registration for faults, and has none made until resume is called: a driver may take it for a use of
// what it is of. It returns once it is free, which takes as long as one wait for faults at most, and returns the context's
// error if that is over before. Faults that happen meanwhile are not told; the caller looks at the GPUs afterwards.
func (l *Library) HoldEvents(ctx context.Context) (resume func(), err error) {
	e := l.events
	e.mu.Lock()
	if e.held++; e.held == 1 {
		e.free, e.more = make(chan struct{}), make(chan struct{})
		if !e.open {
			close(e.free)
		}
	}
	free := e.free
	e.mu.Unlock()
	resume = sync.OnceFunc(func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.held--; e.held == 0 {
			close(e.more)
		}
	})
	select {
	case <-free:
		return resume, nil
	case <-ctx.Done():
		resume()
		return nil, fmt.Errorf("free the registration for gpu events: %w (%w)", context.Cause(ctx), sharing.ErrUnavailable)
	}
}

// enter waits until nobody holds, and notes that there is an event set; false at the end.
func (e *eventLoop) enter() bool {
	for e.ctx.Err() == nil {
		e.mu.Lock()
		if e.held == 0 {
			e.open = true
			e.mu.Unlock()
			return true
		}
		more := e.more
		e.mu.Unlock()
		select {
		case <-more:
		case <-e.ctx.Done():
		}
	}
	return false
}

// leave notes that there is none any more.
func (e *eventLoop) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.open = false; e.held > 0 {
		close(e.free)
	}
}

func (e *eventLoop) holds() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.held > 0
}

// run makes event sets and waits on them, with a growing pause after each error, until Close.
func (e *eventLoop) run() {
	pause := e.backOff
	for e.enter() {
		worked := e.session()
		e.leave()
		if worked {
			pause = e.backOff
		}
		if worked && e.holds() {
			continue // it ended for that
		}
		select {
		case <-e.ctx.Done():
		case <-time.After(pause):
			pause = min(2*pause, lastBackOff)
		}
	}
}

// session uses one event set until an error, and reports whether it ever worked.
func (e *eventLoop) session() (worked bool) {
	set, err := e.lib.door.newEvents()
	if err != nil {
		e.fail(err)
		return false
	}
	defer func() {
		if err := set.free(); err != nil {
			e.lib.opts.Log.Warn("event set is not freed", "error", err)
		}
	}()
	tried := map[device]bool{}
	registered := 0
	for e.ctx.Err() == nil && !e.holds() {
		n, err := e.register(set, tried)
		registered += n
		if registered == 0 {
			e.fail(err)
			return false
		}
		raw, ok, err := set.wait()
		if err != nil {
			e.fail(err)
			return worked
		}
		worked = true
		if ok {
			e.deliver(delivery{ev: Event{GPU: e.name(raw.dev), XID: raw.xid, GI: raw.gi, CI: raw.ci}})
		}
	}
	return worked
}

// register adds the GPUs that have become known, and returns how many of them tell faults. GPUs that fail
// otherwise are tried again with the next event set.
func (e *eventLoop) register(set eventSet, tried map[device]bool) (n int, err error) {
	e.lib.mu.Lock()
	var fresh []device
	for _, dev := range e.lib.known {
		if !tried[dev] {
			tried[dev] = true
			fresh = append(fresh, dev)
		}
	}
	e.lib.mu.Unlock()
	err = fmt.Errorf("no gpu is known that tells faults: %w", sharing.ErrUnsupported)
	for _, dev := range fresh {
		switch rerr := set.register(dev); {
		case rerr == nil:
			n++
		case !errors.Is(rerr, sharing.ErrUnsupported):
			e.lib.opts.Log.Warn("faults of a gpu are not watched", "gpu", string(e.name(dev)), "error", rerr)
			err = rerr
		}
	}
	return n, err
}

// name finds the GPU of a handle among those known; it asks the driver nothing.
func (e *eventLoop) name(dev device) sharing.GPUID {
	e.lib.mu.Lock()
	defer e.lib.mu.Unlock()
	for id, known := range e.lib.known {
		if known == dev {
			return id
		}
	}
	return ""
}

// deliver waits for room: a fault is never dropped.
func (e *eventLoop) deliver(d delivery) {
	select {
	case e.out <- d:
	case <-e.ctx.Done():
	}
}

// fail tells an error unless something waits to be read: an old error is of no use to a late reader.
func (e *eventLoop) fail(err error) {
	if len(e.out) == 0 {
		e.deliver(delivery{err: err})
	}
}
