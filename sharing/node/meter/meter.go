// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package meter measures what grants use, writes it to the audit log, and acts on pods that leave their GPUs idle.
package meter

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/audit"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
	"github.com/kerf-gpu/kerf/sharing/node/notify"
	"github.com/kerf-gpu/kerf/sharing/node/observe"
	"github.com/kerf-gpu/kerf/sharing/usage"
)

const (
	// every is the interval of samples, and writeEvery that of records in the audit log.
	every      = 10 * time.Second
	writeEvery = 15 * time.Minute
	// deadline bounds what is read of one GPU.
	deadline = 500 * time.Millisecond
	// idleReason is the reason of evictions for being idle, for the observer.
	idleReason = "idle"
	// mostEvictions is how many evictions run at once. A later sample asks for the others.
	mostEvictions = 4
)

const (
	// IdleReason of a pod: it leaves all its GPUs idle for longer than its pool allows.
	IdleReason = "GPUIdle"
	// UnattributedReason of the node: a GPU has unattributed memory, which is in use and belongs to no process that the
	// driver lists.
	UnattributedReason = "UnattributedGPUMemory"
)

// Driver reads the GPU time of processes, and the power of a GPU. Errors wrap sharing.ErrLost, sharing.ErrUnavailable
// or sharing.ErrUnsupported.
type Driver interface {
	ProcessTime(ctx context.Context, gpu sharing.GPURef, since time.Time) (sharing.TimeUse, error)
	Power(ctx context.Context, gpu sharing.GPURef) (watts float64, err error)
}

// Sampler takes samples.
type Sampler interface {
	Sample(ctx context.Context) observe.Sample
}

// Watcher sees each sample.
type Watcher interface {
	See(ctx context.Context, s observe.Sample)
}

// View is what a meter sees of the node, at one moment.
type View struct {
	// Driver is nil while no driver answers.
	Driver Driver
	// GPUs are by index.
	GPUs   []sharing.GPU
	Grants []ledger.Grant
	Idle   config.Idle
}

// Options are what a meter works with.
type Options struct {
	Log        *slog.Logger
	Notify     *notify.Notifier
	Conditions *conditions.Set
	Sampler    Sampler
	View       func() View
	// Watcher sees the samples of the meter, too.
	Watcher Watcher
}

// Meter adds up what grants use. Make it with New. It is not safe for concurrent use.
type Meter struct {
	opt    Options
	sums   usage.Meter
	idler  usage.IdleTracker
	start  time.Time
	grants map[string]ledger.Reservation
	// labels are the last known ones of the pods of grants.
	labels       map[string]map[string]string
	unattributed observe.Unattributed
	evictions    errgroup.Group
}

// New makes a meter that has seen nothing yet.
func New(opt Options) *Meter {
	m := &Meter{opt: opt, start: time.Now(), grants: map[string]ledger.Reservation{},
		labels: map[string]map[string]string{}}
	m.evictions.SetLimit(mostEvictions)
	return m
}

// Run measures until ctx ends, and then writes what is not written yet.
func (m *Meter) Run(ctx context.Context) error {
	defer m.Wait()
	sample, write := time.NewTicker(every), time.NewTicker(writeEvery)
	defer sample.Stop()
	defer write.Stop()
	for {
		select {
		case <-ctx.Done():
			m.write(m.sums.Take())
			return nil
		case <-write.C:
			m.write(m.sums.Take())
		case <-sample.C:
			m.Measure(ctx)
		}
	}
}

// Wait waits for the evictions that the meter asked for.
func (m *Meter) Wait() { _ = m.evictions.Wait() } // they log their errors

// Measure takes one sample.
func (m *Meter) Measure(ctx context.Context) {
	s := m.opt.Sampler.Sample(ctx)
	now, v := time.Since(m.start), m.opt.View()
	gpus := map[sharing.GPURef]sharing.GPU{}
	for _, g := range v.GPUs {
		gpus[g.Ref()] = g
	}
	busy, watts := m.read(ctx, v, s)
	if ctx.Err() != nil {
		return // An answer that comes while the agent stops is not the driver's.
	}
	m.opt.Watcher.See(ctx, s)
	m.reportUnattributed(ctx, s, v)
	var looks []usage.Observation
	together := map[string]int{}
	for _, g := range v.Grants {
		together[g.DevicesKey()]++
	}
	for _, g := range v.Grants {
		m.remember(g)
		for _, f := range g.Placement {
			one := look(g, f, gpus[f.GPU], s, busy[f.GPU], watts[f.GPU])
			if key := g.DevicesKey(); key != "" { // each has an equal part of what they have together
				one.Share /= float64(together[key])
				one.Granted /= sharing.Bytes(together[key]) //nolint:gosec // at least 1
			}
			looks = append(looks, one)
		}
	}
	m.write(m.sums.Step(now, looks))
	maps.DeleteFunc(m.grants, func(id string, _ ledger.Reservation) bool { return !containsGrant(v.Grants, id) })
	maps.DeleteFunc(m.labels, func(id string, _ map[string]string) bool { return !containsGrant(v.Grants, id) })
	m.judgeIdle(ctx, now, v.Idle, v.Grants)
}

// remember keeps what records say of a grant, also after it has ended.
func (m *Meter) remember(g ledger.Grant) {
	id := string(g.ID)
	m.grants[id] = g.Reservation
	if labels := m.opt.Notify.Labels(g); labels != nil { // else the pod is going, and had those before
		m.labels[id] = fewLabels(labels)
	}
}

// look is what a grant uses of one GPU. busy is the GPU time of grants; nil if that is unknown.
func look(g ledger.Grant, f sharing.Share, gpu sharing.GPU, s observe.Sample, busy map[ledger.GrantID]int,
	watts float64) usage.Observation {
	l := usage.Observation{
		Grant: string(g.ID), GPU: f.GPU, Model: gpu.Model, Share: shareOf(f, gpu), Granted: f.Memory,
		Active: g.Active != nil, Busy: -1, Watts: watts,
	}
	if f.Whole {
		l.Granted = gpu.Usable()
	}
	if busy != nil && f.MIG.None() {
		l.Busy = min(busy[g.ID], 100)
	}
	l.Used, l.UsedKnown = s.Used(g.ID, f.GPU)
	return l
}

// reportUnattributed reports the unattributed memory of each GPU once, until the GPU has no more than usual.
func (m *Meter) reportUnattributed(ctx context.Context, s observe.Sample, v View) {
	news := m.unattributed.News(s)
	for _, gpu := range v.GPUs {
		if bytes, is := news[gpu.Ref()]; is {
			m.opt.Log.Warn("found unattributed memory on GPU", "gpu", gpu.Ref().String(), "bytes",
				uint64(bytes))
			m.opt.Notify.Node(ctx, UnattributedReason, s.Unattributed(gpu, v.Grants))
		}
	}
}

func containsGrant(grants []ledger.Grant, id string) bool {
	for _, g := range grants {
		if string(g.ID) == id {
			return true
		}
	}
	return false
}

// shareOf is the fraction of a GPU that a share has.
func shareOf(f sharing.Share, g sharing.GPU) float64 {
	switch {
	case f.Whole:
		return 1
	case f.Percent > 0:
		return float64(f.Percent) / float64(sharing.FullGPU)
	case g.Usable() > 0:
		return min(float64(f.Memory)/float64(g.Usable()), 1)
	}
	return 0
}

// read reads the GPU time that each grant used since the last sample, and the power of each GPU. What the driver does
// not tell is not in the maps; -1 is doubtful.
func (m *Meter) read(ctx context.Context, v View, s observe.Sample) (busy map[sharing.GPURef]map[ledger.GrantID]int,
	watts map[sharing.GPURef]float64) {
	busy, watts = map[sharing.GPURef]map[ledger.GrantID]int{}, map[sharing.GPURef]float64{}
	if v.Driver == nil {
		return busy, watts
	}
	owners := map[int]ledger.GrantID{}
	for id, pids := range s.PIDs {
		for _, pid := range pids {
			owners[pid] = id
		}
	}
	for _, g := range v.GPUs {
		gpu := g.Ref()
		one, cancel := context.WithTimeout(ctx, deadline)
		told, err := v.Driver.ProcessTime(one, gpu, time.Now().Add(-every))
		reading, seen := s.GPUs[gpu]
		idle := seen && reading.Utilization == 0 // Else a list without rows says nothing.
		if by := busyBy(told, owners); err == nil && (told.Known() || idle) {
			busy[gpu] = by
		}
		if w, err := v.Driver.Power(one, gpu); err == nil {
			watts[gpu] = w
		}
		cancel()
	}
	return busy, watts
}

// busyBy is what each grant used of a GPU, -1 where a row of its was not fit to be used.
func busyBy(told sharing.TimeUse, owners map[int]ledger.GrantID) map[ledger.GrantID]int {
	by := map[ledger.GrantID]int{}
	for pid, row := range told.Rows {
		if id, ours := owners[pid]; ours {
			by[id] += row.SM
		}
	}
	for _, pid := range told.Doubt {
		if id, ours := owners[pid]; ours {
			by[id] = -1
		}
	}
	return by
}

// write writes records to the audit log.
func (m *Meter) write(of map[string][]usage.Record) {
	for id, records := range of {
		if c, known := m.grants[id]; known && m.opt.Notify.Audit != nil {
			e := notify.Entry(audit.Usage, c)
			e.Shares, e.Usage, e.Subject.Labels = nil, records, m.labels[id]
			m.opt.Notify.Audit.Write(e)
		}
	}
}

// mostLabels is how many labels of a pod are written.
const mostLabels = 16

// fewLabels leaves out labels that controllers give each of their pods, and what is more than are written.
func fewLabels(all map[string]string) map[string]string {
	out := map[string]string{}
	for _, k := range slices.Sorted(maps.Keys(all)) {
		if strings.HasSuffix(k, "-hash") || strings.HasSuffix(k, "controller-uid") || len(out) == mostLabels {
			continue
		}
		out[k] = all[k]
	}
	return out
}
