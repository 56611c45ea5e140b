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

// Faults waits for faults of GPUs in a separate goroutine, which the first WaitEvent starts and Close ends.
type Faults struct {
	driver  *driver
	ctx     context.Context
	stop    context.CancelFunc
	backOff time.Duration // the first one
	out     chan delivery
	once    sync.Once
	wg      sync.WaitGroup

	// The lock mu guards the fields below it. The callers that need the event set away are counted in held. The channel
	// free is closed when there is no event set and held is above 0; more is closed when held is 0 again.
	mu         sync.Mutex
	held       int
	open       bool
	free, more chan struct{}
}

type delivery struct {
	ev  Event
	err error
}

func newFaults(d *driver) *Faults {
	ctx, stop := context.WithCancel(context.Background())
	return &Faults{driver: d, ctx: ctx, stop: stop, backOff: firstBackOff, out: make(chan delivery, eventRoom)}
}

// WaitEvent returns the next fault of any GPU that GPUs has found. Faults are collected from the first call on, so that
// none is lost between calls. Errors: the context's (it ended first). The error sharing.ErrUnsupported means that no
// GPU reports faults; another call is no use until GPUs has found another. The errors sharing.ErrUnavailable and
// sharing.ErrLost mean that the driver cannot report now. Another call is right, and waits longer each time.
func (f *Faults) WaitEvent(ctx context.Context) (Event, error) {
	if err := f.driver.begin(); err != nil {
		return Event{}, fmt.Errorf("wait for gpu events: %w", err)
	}
	defer f.driver.calls.Done()
	f.once.Do(func() { f.wg.Go(f.run) })
	select {
	case d := <-f.out:
		if d.err != nil {
			return Event{}, fmt.Errorf("wait for gpu events: %w", d.err)
		}
		return d.ev, nil
	case <-ctx.Done():
		return Event{}, fmt.Errorf("wait for gpu events: %w", context.Cause(ctx))
	case <-f.ctx.Done():
		return Event{}, fmt.Errorf("wait for gpu events: nvml is closed: %w", sharing.ErrUnavailable)
	}
}

// PauseEvents frees the registration for faults, and blocks a new one until resume is called. A driver may count it as
// a use of the GPU. It returns once it is free, after one wait for faults at most, or the context's error. Faults
// meanwhile are lost; the caller reads the GPUs' health afterwards.
func (f *Faults) PauseEvents(ctx context.Context) (resume func(), err error) {
	f.mu.Lock()
	if f.held++; f.held == 1 {
		f.free, f.more = make(chan struct{}), make(chan struct{})
		if !f.open {
			close(f.free)
		}
	}
	free := f.free
	f.mu.Unlock()
	resume = sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.held--; f.held == 0 {
			close(f.more)
		}
	})
	select {
	case <-free:
		return resume, nil
	case <-ctx.Done():
		resume()
		return nil, fmt.Errorf("free the registration for gpu events: %w (%w)", context.Cause(ctx),
			sharing.ErrUnavailable)
	}
}

// enter waits until no caller holds, and notes that there is an event set; false at the end.
func (f *Faults) enter() bool {
	for f.ctx.Err() == nil {
		f.mu.Lock()
		if f.held == 0 {
			f.open = true
			f.mu.Unlock()
			return true
		}
		more := f.more
		f.mu.Unlock()
		select {
		case <-more:
		case <-f.ctx.Done():
		}
	}
	return false
}

// leave notes that there is none any more.
func (f *Faults) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open = false; f.held > 0 {
		close(f.free)
	}
}

func (f *Faults) holds() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.held > 0
}

// run makes event sets and waits on them, with a growing pause after each error, until Close.
func (f *Faults) run() {
	pause := f.backOff
	for f.enter() {
		worked := f.session()
		f.leave()
		if worked {
			pause = f.backOff
		}
		if worked && f.holds() {
			continue // it ended for that
		}
		select {
		case <-f.ctx.Done():
		case <-time.After(pause):
			pause = min(2*pause, lastBackOff)
		}
	}
}

// session uses one event set until an error, and reports whether it ever worked.
func (f *Faults) session() (worked bool) {
	set, err := f.driver.adapter.newEvents()
	if err != nil {
		f.fail(err)
		return false
	}
	defer func() {
		if err := set.free(); err != nil {
			f.driver.opts.Log.Warn("failed to free event set", "error", err)
		}
	}()
	tried := map[device]bool{}
	registered := 0
	for f.ctx.Err() == nil && !f.holds() {
		n, err := f.register(set, tried)
		registered += n
		if registered == 0 {
			f.fail(err)
			return false
		}
		raw, ok, err := set.wait()
		if err != nil {
			f.fail(err)
			return worked
		}
		worked = true
		if ok {
			f.deliver(delivery{ev: Event{GPU: f.name(raw.dev), XID: raw.xid, GI: raw.gi, CI: raw.ci}})
		}
	}
	return worked
}

// register adds the GPUs that have become known, and returns how many of them tell faults. GPUs that fail
// otherwise are tried again with the next event set.
func (f *Faults) register(set eventSet, tried map[device]bool) (n int, err error) {
	err = fmt.Errorf("no gpu is known that tells faults: %w", sharing.ErrUnsupported)
	for _, dev := range f.driver.handles() {
		if tried[dev] {
			continue
		}
		tried[dev] = true
		switch rerr := set.register(dev); {
		case rerr == nil:
			n++
		case !errors.Is(rerr, sharing.ErrUnsupported):
			f.driver.opts.Log.Warn("failed to register for XID events of GPU", "gpu", string(f.name(dev)), "error",
				rerr)
			err = rerr
		}
	}
	return n, err
}

// name finds the GPU of a handle among those known; it asks the driver nothing.
func (f *Faults) name(dev device) sharing.GPUID {
	for id, known := range f.driver.handles() {
		if known == dev {
			return id
		}
	}
	return ""
}

// deliver waits for room: a fault is never dropped.
func (f *Faults) deliver(d delivery) {
	select {
	case f.out <- d:
	case <-f.ctx.Done():
	}
}

// fail tells an error unless something waits to be read: an old error is of no use to a late reader.
func (f *Faults) fail(err error) {
	if len(f.out) == 0 {
		f.deliver(delivery{err: err})
	}
}
