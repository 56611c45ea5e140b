// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sim/machine"
	"github.com/kerf-gpu/kerf/sim/model"
	"github.com/kerf-gpu/kerf/sim/wire"
)

// Options say what to simulate, and where.
type Options struct {
	// Dir is the simulated node's directory: absolute, present, locked by the caller.
	Dir     string
	Machine machine.Machine
	Driver  machine.Driver
	Log     *slog.Logger
}

// Daemon is a running simulated driver. Make it with New, then call Run once.
type Daemon struct {
	opts    Options
	log     *slog.Logger
	groups  hierarchy
	uuids   []string
	servers []server
	wg      sync.WaitGroup // connections
	stop    context.CancelFunc

	mu      sync.Mutex
	model   *model.Model
	holders map[model.ClientID]*peer
	ends    *ends             // of holders
	shown   map[string]string // capability files, by path under the directory
	sets    int               // limits that were set
	changed chan struct{}     // closed and replaced when an event was raised or a latency changed
}

// New binds all sockets, so a program that learns of its return can connect. Errors: sharing.ErrInvalid (the
// directory's path is too long for sockets), or what the system says.
func New(o Options) (*Daemon, error) {
	groups, err := findHierarchy()
	if err != nil {
		return nil, err
	}
	ends, err := newEnds()
	if err != nil {
		return nil, err
	}
	d := &Daemon{
		ends: ends, opts: o, log: o.Log, groups: groups, stop: func() {},
		model: model.New(o.Machine, o.Driver), holders: map[model.ClientID]*peer{}, changed: make(chan struct{}),
	}
	for i := range o.Machine.GPUs {
		d.uuids = append(d.uuids, machine.UUID(o.Dir, o.Machine.Name, i))
	}
	if err := d.listen(); err != nil {
		return nil, errors.Join(err, d.closeListeners(), ends.close())
	}
	d.showCaps()
	return d, nil
}

// Run serves until ctx ends or the control command stop comes. All sockets are closed and removed, and all
// goroutines have ended, when it returns.
func (d *Daemon) Run(ctx context.Context) error {
	ctx, d.stop = context.WithCancel(ctx)
	defer d.stop()
	var accepting sync.WaitGroup
	for _, s := range d.servers {
		accepting.Go(func() { d.accept(ctx, s) })
	}
	d.log.Info("simulated driver is ready", "dir", d.opts.Dir, "machine", d.opts.Machine.Name,
		"driver", d.opts.Driver.Version, "gpus", len(d.opts.Machine.GPUs), "cgroup_mount", d.groups.mount)
	<-ctx.Done()
	err := d.closeListeners()
	accepting.Wait()
	d.wg.Wait()
	d.log.Info("simulated driver has stopped")
	return errors.Join(err, d.ends.close(), cleanCaps(d.opts.Dir))
}

// now is CLOCK_MONOTONIC, which the libraries read, too.
func now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0 // impossible: the clock always exists
	}
	return time.Duration(ts.Nano())
}

// notify wakes all who wait for an event or a latency to end. d.mu is held.
func (d *Daemon) notify() {
	close(d.changed)
	d.changed = make(chan struct{})
}

// latency returns how late the answer to a call on a GPU's socket is. The channel is closed when that may have changed.
func (d *Daemon) latency(minor int, op wire.Op, start time.Duration) (time.Duration, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.model.Latency(minor, start) + d.model.CallFault(minor, op).Latency, d.changed // each is at most a day
}

// answered is Model.Answered.
func (d *Daemon) answered(minor int, op wire.Op, start time.Duration) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.model.Answered(minor, op, start)
}

// delay holds an answer back that was asked for at start. It fails when ctx ends first.
func (d *Daemon) delay(ctx context.Context, minor int, op wire.Op, start time.Duration) error {
	for {
		late, changed := d.latency(minor, op, start)
		left := start + late - now()
		if left <= 0 {
			return nil
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-changed:
		case <-ctx.Done():
		}
		timer.Stop()
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("hold an answer back: %w", err)
		}
	}
}

// reap releases what connections held that are closed, if their goroutine has not done so yet. It notes whose process
// has ended. d.mu is held.
func (d *Daemon) reap() {
	closed, ended := d.ends.come()
	for _, id := range ended {
		d.model.End(id)
	}
	for _, id := range closed {
		if d.holders[id] != nil && d.model.Leave(id, now()) == 0 {
			delete(d.holders, id)
		}
	}
	for _, id := range d.model.Left(now()) {
		delete(d.holders, id)
	}
}
