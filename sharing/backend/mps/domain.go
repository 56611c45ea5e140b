// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/internal/mps"
	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sharing"
)

const (
	startTime  = 10 * time.Second      // the default of Options.StartTime
	lookEvery  = 20 * time.Millisecond // while a server's start is awaited
	quitTime   = 2 * time.Second
	maxSilent  = 3  // looks in a row without an answer, until a daemon that lives counts as hung
	limitEvery = 10 // looks from one setting of the limits, which the domain's processes can change, to the next

	firstPause, maxPause = time.Second, time.Minute
)

// domain is a control daemon and who uses it. The GPU's mutex guards it.
type domain struct {
	opt         *Options
	key         Key
	place       place
	daemon      mps.Daemon
	attachments map[string]Terms
	begun       bool // it was wanted to run: before that its attachments have only what containers are made with

	pid       int // 0: not running
	start     uint64
	condition Condition
	reason    string
	servers   []int
	silent    int
	looks     int  // since the limits were set
	stale     bool // the limits are not those of the attachments
	retry     retry
}

// retry spaces out the starts of a daemon that does not stay up.
type retry struct {
	restarts int
	pause    time.Duration
	next     time.Time // no start before
}

// due reports whether the daemon may be started now, and counts the start. Each pause is twice the one before.
func (r *retry) due(now time.Time) bool {
	if now.Before(r.next) {
		return false
	}
	r.restarts++
	r.pause = min(max(2*r.pause, firstPause), maxPause)
	r.next = now.Add(r.pause)
	return true
}

func newDomain(opt *Options, k Key, p place) *domain {
	return &domain{opt: opt, key: k, place: p, attachments: map[string]Terms{}, daemon: p.daemon(opt.Program, k.GPU)}
}

// make creates the folders, and writes down whose they are: their name says nothing.
func (d *domain) make() error {
	if err := d.place.make(); err != nil {
		return err
	}
	return d.note()
}

// bound is the most that an attachment of the domain has: no process of it may have more.
func (d *domain) bound() Terms {
	var most Terms
	for _, t := range d.attachments {
		most.Memory = max(most.Memory, t.Memory)
		if t.Percent == 0 {
			t.Percent = sharing.FullGPU
		}
		most.Percent = max(most.Percent, t.Percent)
	}
	return most
}

// alive reports whether the daemon's process runs.
func (d *domain) alive() bool {
	if d.pid == 0 {
		return false
	}
	h, err := process.OpenAt(d.pid, d.start)
	if err != nil {
		return false
	}
	defer h.Close()
	return h.Alive()
}

// up starts the daemon, unless it runs, and returns once it serves with the bounds of its attachments.
func (d *domain) up(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, d.opt.StartTime)
	defer cancel()
	if !d.alive() {
		if err := d.launch(ctx); err != nil {
			return d.down(err)
		}
	}
	if err := d.limit(ctx); err != nil {
		return d.down(err)
	}
	if err := d.serve(ctx); err != nil {
		return d.down(err)
	}
	d.condition, d.reason, d.silent, d.retry.pause = Ready, "", 0, 0
	return nil
}

// down notes why the daemon is not ready.
func (d *domain) down(err error) error {
	d.condition, d.reason, d.servers = Down, err.Error(), nil
	return err
}

// launch ends the rest of an earlier daemon, starts one, and finds its process. It writes a record before it starts the
// daemon, so that a crash in between leaves nothing unknown.
func (d *domain) launch(ctx context.Context) error {
	d.pid, d.servers = 0, nil
	if err := d.make(); err != nil {
		return err
	}
	if err := d.sweep(ctx); err != nil {
		return err
	}
	if err := d.daemon.Start(ctx); err != nil {
		return err
	}
	for {
		_, err := d.daemon.Servers(ctx)
		if err == nil {
			break
		}
		if wait(ctx, lookEvery) != nil {
			return fmt.Errorf("the MPS control daemon of GPU %s does not answer; see %q: %w", d.key.GPU, d.daemon.Logs,
				err)
		}
	}
	running, err := mps.Running(d.place.dir)
	if err != nil {
		return err
	}
	running = slices.DeleteFunc(running, func(p mps.Process) bool { return p.Server || p.Pipe != d.daemon.Pipe })
	if len(running) != 1 {
		return fmt.Errorf("%d processes are the MPS control daemon of GPU %s: %w", len(running), d.key.GPU,
			sharing.ErrUnavailable)
	}
	d.pid, d.start = running[0].PID, running[0].Start
	if d.opt.MoveDaemon != nil {
		if err := d.opt.MoveDaemon(d.pid); err != nil {
			return errors.Join(err, d.sweep(ctx))
		}
	}
	d.opt.Log.Info("started MPS daemon", "gpu", d.key.GPU, "domain", d.key.Domain, "pid", d.pid)
	return d.note()
}

// note writes down what runs.
func (d *domain) note() error {
	version := recordVersion
	if d.place.plain {
		version = plainVersion
	}
	return save(d.place.record(), daemonRecord{
		Version: version, BootID: d.opt.BootID, GPU: d.key.GPU, Domain: d.key.Domain, Contained: d.key.Contained,
		PID: d.pid, Start: d.start,
	})
}

// limit gives the daemon, and the servers that there are, the bounds of the attachments. It comes before the first
// server.
func (d *domain) limit(ctx context.Context) error {
	most := d.bound()
	d.stale, d.looks = true, 0
	if err := errors.Join(d.daemon.SetDefaultMemory(ctx, most.Memory),
		d.daemon.SetDefaultPercent(ctx, most.Percent)); err != nil {
		return err
	}
	servers, err := d.daemon.Servers(ctx)
	for _, s := range servers {
		err = errors.Join(err, d.daemon.SetMemory(ctx, s, most.Memory), d.daemon.SetPercent(ctx, s, most.Percent))
	}
	d.stale = err != nil
	return err
}

// serve makes sure that a server takes clients: it starts one if there is none, and waits until it is active. A real
// one needs a second or so for that.
func (d *domain) serve(ctx context.Context) error {
	servers, err := d.daemon.Servers(ctx)
	if err == nil && len(servers) == 0 {
		err = d.daemon.StartServer(ctx, d.place.user)
	}
	seen := len(servers) > 0
	appear, cancel := context.WithTimeout(ctx, d.opt.StartTime/5)
	defer cancel()
	for err == nil {
		var active bool
		servers, active, err = d.active(ctx)
		if active || err != nil {
			break
		}
		missing := len(servers) == 0 && (seen || appear.Err() != nil)
		if missing || wait(ctx, lookEvery) != nil {
			err = fmt.Errorf(
				"no MPS server comes up on GPU %s (is another process on it, or is it in MIG mode?); see %q: %w",
				d.key.GPU, d.daemon.Logs, sharing.ErrUnavailable)
		}
		seen = seen || len(servers) > 0
	}
	d.servers = servers
	return err
}

// active returns the servers, and whether there is one and each takes clients. sharing.ErrUnavailable: one has a fault.
func (d *domain) active(ctx context.Context) ([]int, bool, error) {
	servers, err := d.daemon.Servers(ctx)
	all := len(servers) > 0
	for _, s := range servers {
		status, errOf := d.daemon.Status(ctx, s)
		switch {
		case errOf != nil: // it may have just ended
			all = false
		case status == mps.Fault:
			err = errors.Join(err, fmt.Errorf("MPS server %d of GPU %s has status %s: %w", s, d.key.GPU, status,
				sharing.ErrUnavailable))
		}
		all = all && status == mps.Active
	}
	return servers, all && err == nil, err
}

// look is what supervision does for a domain at each tick.
func (d *domain) look(ctx context.Context) {
	if d.alive() {
		ctx, cancel := context.WithTimeout(ctx, d.opt.StartTime)
		defer cancel()
		var err error
		if d.looks++; d.stale || d.looks >= limitEvery {
			err = d.limit(ctx)
		}
		if err = errors.Join(err, d.serve(ctx)); err == nil {
			d.condition, d.reason, d.silent, d.retry.pause = Ready, "", 0, 0
			return
		}
		if d.silent++; d.silent < maxSilent {
			_ = d.down(err)
			return
		}
		d.opt.Log.Error("MPS daemon stopped answering", "gpu", d.key.GPU, "domain", d.key.Domain, "pid", d.pid,
			"error", err)
	} else if d.condition == Ready {
		d.opt.Log.Error("MPS daemon died", "gpu", d.key.GPU, "domain", d.key.Domain, "pid", d.pid)
		_ = d.down(fmt.Errorf("the MPS control daemon of GPU %s has died: %w", d.key.GPU, sharing.ErrUnavailable))
	}
	d.again(ctx)
}

// again restarts the daemon, when it is time.
func (d *domain) again(ctx context.Context) {
	if !d.retry.due(d.opt.Now()) {
		return
	}
	d.pid, d.silent = 0, 0
	if d.opt.Again != nil {
		d.opt.Again(d.key)
	}
	pause := d.retry.pause
	if err := d.up(ctx); err != nil {
		d.opt.Log.Error("failed to start MPS daemon, will retry", "gpu", d.key.GPU, "domain", d.key.Domain,
			"retry_in", pause,
			"error", err)
		return
	}
	d.retry.pause = pause // until a check finds it healthy
}

// stop ends the daemon and its servers and removes what it had. Its attachments are over.
func (d *domain) stop(ctx context.Context) error {
	var err error
	if d.alive() {
		ctx, cancel := context.WithTimeout(ctx, quitTime)
		_ = d.daemon.Quit(ctx, 0) // one that does not listen is killed next
		cancel()
	}
	if err = d.sweep(ctx); err == nil {
		err = d.place.remove()
	}
	if err != nil {
		return fmt.Errorf("end the MPS control daemon of GPU %s: %w", d.key.GPU, err)
	}
	d.opt.Log.Info("stopped MPS daemon", "gpu", d.key.GPU, "domain", d.key.Domain)
	return nil
}

// sweep kills every daemon and server of the domain's pipe directory and waits for their end.
func (d *domain) sweep(ctx context.Context) error {
	return sweep(ctx, d.place.dir, nil)
}

// sweep kills the daemons and servers below a directory, but those of these pipe directories.
func sweep(ctx context.Context, dir string, spare []string) error {
	running, err := mps.Running(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range running {
		if slices.Contains(spare, p.Pipe) {
			continue
		}
		if err := p.Kill(ctx); err != nil && !errors.Is(err, sharing.ErrNotFound) && !errors.Is(err, sharing.ErrStale) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// wait waits so long, or fails when ctx ends first.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
