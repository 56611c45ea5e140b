// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/kerf-gpu/kerf/monitor/attribution"
	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// ShortestInterval is the least time between two cycles.
	ShortestInterval = 100 * time.Millisecond
	// DefaultInterval is the time between two cycles when no reader wants a shorter one.
	DefaultInterval = time.Second
	// readDeadline bounds how long a cycle waits for a GPU that does not answer.
	readDeadline = 2 * time.Second
	// patience is how long the collector reads GPUs one by one before it reads the others concurrently.
	patience = 5 * time.Millisecond
	// longestGap is the time between two samples beyond which energy is not computed from power, unless samples are
	// that far apart by the interval.
	longestGap = 10 * time.Second
)

// Source tells of GPUs.
type Source interface {
	// Name and Driver say what it is.
	Name() string
	Driver() string
	// GPUs are those to be read; the list may change.
	GPUs() []Info
	// Read asks one GPU. It is called for several GPUs at once, and returns when ctx ends, if the driver hangs or not.
	Read(ctx context.Context, gpu Info) Reading
}

// Grants tells of the node's grants.
type Grants interface {
	// Grants are by id; fresh is false while the agent is away.
	Grants() (all map[string]Grant, fresh bool)
}

// Options say what a collector works with. All but Interval and Now is needed.
type Options struct {
	Source      Source
	Grants      Grants
	Processes   Processes
	Broadcaster *Broadcaster
	Log         *slog.Logger
	// Interval is 100 ms or more; 0 means DefaultInterval.
	Interval time.Duration
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Collector takes the samples. Make it with New.
type Collector struct {
	opts   Options
	places places
	placed map[sharing.GPUID]placed
	tally  attribution.Accumulator
	power  map[sharing.GPUID]power
	last   time.Time
	// known are unmanaged processes that were logged.
	known map[user]bool
}

// placed are a GPU's processes as last reported, and the same with their cgroups.
type placed struct{ reported, known []attribution.Process }

// power is what energy is computed from.
type power struct {
	at     time.Time
	watts  float64
	hasW   bool
	joules float64
	hasJ   bool
	// ahead is the energy, in joules, that was computed from power since the counter moved last.
	ahead float64
}

type user struct {
	gpu sharing.GPUID
	pid int
}

// New makes a collector.
func New(o Options) *Collector {
	if o.Interval <= 0 {
		o.Interval = DefaultInterval
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Collector{opts: o, places: places{processes: o.Processes, known: map[int]*place{}},
		placed: map[sharing.GPUID]placed{}, power: map[sharing.GPUID]power{}, known: map[user]bool{}}
}

// Run takes samples until ctx ends. A cycle that takes longer than the interval delays the next; none are made up for.
func (c *Collector) Run(ctx context.Context) error {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.opts.Broadcaster.wish:
			// A shorter interval is wanted; the timer below is set to it after one more sample.
		case <-t.C:
		}
		began := time.Now()
		c.Cycle(ctx)
		t.Reset(max(0, c.opts.Broadcaster.interval(c.opts.Interval)-time.Since(began)))
	}
}

// Cycle takes one sample of every GPU and publishes it.
func (c *Collector) Cycle(ctx context.Context) {
	at := c.opts.Now()
	var passed time.Duration
	if !c.last.IsZero() {
		passed = max(0, at.Sub(c.last))
	}
	c.last = at
	s := &Snapshot{At: at, Source: c.opts.Source.Name(), Driver: c.opts.Source.Driver()}
	s.Grants, s.Agent = c.opts.Grants.Grants()
	readings := c.read(ctx)
	attachments := make([]attribution.Attachment, 0, len(s.Grants))
	living := make(map[string]bool, len(s.Grants))
	for id, g := range s.Grants {
		attachments = append(attachments, g.Attachment)
		living[id] = true
	}
	attribution.SortAttachments(attachments)
	var samples []attribution.Sample
	c.place(readings, at)
	for _, r := range readings {
		g := GPU{Info: r.Info, Err: r.Err}
		if r.Err == nil {
			g.Fields, g.Device = r.Fields, r.Device
			g.Device.GPU = r.Info.UUID
			g.Device.Energy = c.energy(r, at)
			g.Use = attribution.Attribute(g.Device, attachments)
			samples = append(samples, g.Use)
		}
		s.GPUs = append(s.GPUs, g)
	}
	c.tally.Add(samples, passed, living)
	for i, g := range s.GPUs {
		s.GPUs[i].Totals = c.totals(g)
	}
	c.logUnmanaged(s)
	s.Took = c.opts.Now().Sub(at)
	c.opts.Broadcaster.Publish(s)
}

// read reads the GPUs one by one while they answer soon, which takes the least CPU. If one is slow, it reads the
// others concurrently.
func (c *Collector) read(ctx context.Context) []Reading {
	ctx, cancel := context.WithTimeout(ctx, readDeadline)
	defer cancel()
	gpus := c.opts.Source.GPUs()
	out := make([]Reading, len(gpus))
	var next atomic.Int64
	over := make(chan struct{})
	ask := func() {
		for i := int(next.Add(1)) - 1; i < len(gpus); i = int(next.Add(1)) - 1 {
			out[i] = c.opts.Source.Read(ctx, gpus[i])
			out[i].Info = gpus[i]
		}
		over <- struct{}{}
	}
	go ask()
	t := time.NewTicker(patience)
	defer t.Stop()
	for asking := 1; asking > 0; {
		select {
		case <-over:
			asking--
		case <-t.C:
			if int(next.Load()) < len(gpus) {
				asking++
				go ask()
			}
		}
	}
	slices.SortFunc(out, func(a, b Reading) int { return cmp.Compare(a.Info.Index, b.Info.Index) })
	return out
}

// place finds out which cgroups the processes are in. What is as in the sample before, with all that is known of it, is
// not gone through again.
func (c *Collector) place(readings []Reading, now time.Time) {
	c.places.look()
	other := func(r Reading) bool {
		before, ok := c.placed[r.Info.UUID]
		return !ok || !alike(r.Device.Processes, before.reported)
	}
	if len(readings) == len(c.placed) && c.places.hold(now) && !slices.ContainsFunc(readings, other) {
		for i, r := range readings {
			readings[i].Device.Processes = c.placed[r.Info.UUID].known
		}
		return
	}
	c.places.begin()
	defer c.places.end(now)
	all := make(map[sharing.GPUID]placed, len(readings))
	for i, r := range readings {
		p := c.inCgroups(r.Device.Processes, c.placed[r.Info.UUID], now)
		readings[i].Device.Processes, all[r.Info.UUID] = p.known, p
	}
	c.placed = all
}

// inCgroups returns a GPU's processes with their cgroups. Unchanged ones are shared with the sample before; they are
// immutable.
func (c *Collector) inCgroups(reported []attribution.Process, before placed, now time.Time) placed {
	p, shared := placed{reported, before.known}, alike(reported, before.reported)
	if !shared {
		p.known = slices.Clone(reported)
	}
	for i := range reported {
		dir := c.places.of(reported[i].PID, now)
		if p.known[i].Cgroup == dir {
			continue
		}
		if shared {
			p.known, shared = slices.Clone(p.known), false
		}
		p.known[i].Cgroup = dir
	}
	return p
}

// alike reports whether two lists are one.
func alike(a, b []attribution.Process) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// energy is what the GPU used since its last sample. Its counter is read less often than its power, and takes 3 ms. So
// energy is computed from power, taken to have changed evenly, until the counter moves, and is set right then.
func (c *Collector) energy(r Reading, at time.Time) attribution.Reading[attribution.Joules] {
	mj, hasJ := r.Fields[FieldEnergy]
	w, hasW := r.Fields[FieldPower]
	now := power{at: at, watts: w, hasW: hasW, joules: mj / 1000, hasJ: hasJ}
	then, seen := c.power[r.Info.UUID]
	used, known := 0.0, false
	if seen {
		used, known = now.since(then, max(longestGap, 2*c.opts.Interval))
	}
	if counted := then.hasJ && hasJ && now.joules >= then.joules; seen && counted {
		if moved := now.joules - then.joules; moved > 0 || !known {
			now.ahead = max(0, then.ahead-moved)
			used, known = max(0, moved-then.ahead), true
		} else {
			now.ahead = then.ahead + used
		}
	}
	c.power[r.Info.UUID] = now
	if !known {
		return attribution.Reading[attribution.Joules]{}
	}
	return attribution.Known(attribution.Joules(used))
}

// since is the energy since then, in joules, by power. It is not known after a gap that is longer than longest.
func (p power) since(then power, longest time.Duration) (joules float64, known bool) {
	gap := p.at.Sub(then.at)
	if !then.hasW || !p.hasW || gap < 0 || gap > longest {
		return 0, false
	}
	return (then.watts + p.watts) / 2 * gap.Seconds(), true
}

func (c *Collector) totals(g GPU) map[attribution.Place]attribution.Total {
	out := map[attribution.Place]attribution.Total{}
	keep := func(p attribution.Place) {
		if t, ok := c.tally.Of(p); ok {
			out[p] = t
		}
	}
	for _, u := range g.Use.Grants {
		keep(attribution.Place{Grant: u.Grant, GPU: sharing.GPURef{UUID: g.Info.UUID, Instance: u.Instance}})
	}
	keep(attribution.Place{GPU: sharing.GPURef{UUID: g.Info.UUID}, Unmanaged: true})
	keep(attribution.Place{GPU: sharing.GPURef{UUID: g.Info.UUID}})
	return out
}

// logUnmanaged logs each process that no attachment accounts for, once.
func (c *Collector) logUnmanaged(s *Snapshot) {
	now := map[user]bool{}
	for _, g := range s.GPUs {
		for _, pid := range g.Use.UnmanagedPIDs {
			k := user{g.Info.UUID, pid}
			now[k] = true
			if !c.known[k] {
				c.opts.Log.Warn("found unmanaged process on GPU", "gpu", string(g.Info.UUID), "pid", pid)
			}
		}
	}
	c.known = now
}
