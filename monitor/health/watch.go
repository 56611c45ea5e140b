// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kerf-gpu/kerf/internal/sleep"
	"github.com/kerf-gpu/kerf/sharing"
)

// Driver is what the watch reads.
type Driver interface {
	// Check makes one cheap call on the GPU: nil when it answers, else ErrLost or ErrUnavailable.
	Check(ctx context.Context, gpu sharing.GPUID) error
	// Recovery is the driver's own word on what the GPU needs.
	Recovery(ctx context.Context, gpu sharing.GPUID) Recovery
	// Sensors reads the GPU's sensors. It leaves out what it cannot read.
	Sensors(ctx context.Context, gpu sharing.GPUID) Sensors
	// NextXID waits for the next XID event.
	NextXID(ctx context.Context) (XID, error)
}

// XID is one fault that the driver tells of.
type XID struct {
	// GPU is empty where the driver does not name it.
	GPU sharing.GPUID
	// GI is the driver's id of the MIG instance that it is on, or WholeGPU.
	GI  int
	XID uint64
}

// WholeGPU stands for no MIG instance.
const WholeGPU = -1

// Interval and Deadline are the agent's values of Watch.Every and Watch.Deadline: a lost GPU is seen within a second.
const (
	Interval = time.Second
	Deadline = 3 * time.Second
)

// Watch keeps the health of a set of GPUs.
type Watch struct {
	Driver Driver
	GPUs   []sharing.GPUID
	Log    *slog.Logger
	// Report is called with each change, never twice at once; reason has the remedy in it.
	Report func(gpu sharing.GPUID, h sharing.Health, reason string)
	// ReportInstance is Report for a MIG instance with a fault that left the rest of its GPU alone. The instance is
	// unhealthy until as many clean probes of the GPU. If nil, such faults count for the whole GPU.
	ReportInstance func(in Instance, h sharing.Health, reason string)
	// Fault counts each XID event, also those of applications; gpu is empty if the driver does not name it. It may be
	// nil.
	Fault func(gpu sharing.GPUID, xid uint64, class Class)
	// Every is the time between probes of one GPU; Deadline bounds one probe.
	Every, Deadline time.Duration
	// Machines are the states of an earlier watch over the same driver; nil after the driver was loaded. The watch
	// adds missing ones. Only the watch changes them while it runs.
	Machines map[sharing.GPUID]*Machine
	// Faulty are the MIG instances with a fault, as Machines are the GPUs.
	Faulty map[Instance]*Machine

	mu sync.Mutex
}

// Instance is a MIG instance as the driver names it.
type Instance struct {
	GPU sharing.GPUID
	GI  int
}

// goneProbes in a row of each GPU to which none answers mean that the driver itself is gone.
const goneProbes = 3

// Run watches until ctx ends (nil), or until no GPU has answered for some probes. The driver is gone then, which is an
// error that wraps ErrUnavailable.
func (w *Watch) Run(ctx context.Context) error {
	if w.Machines == nil {
		w.Machines = make(map[sharing.GPUID]*Machine, len(w.GPUs))
	}
	for _, id := range w.GPUs {
		if m := w.Machines[id]; m == nil {
			w.Machines[id] = &Machine{}
		} else if s := m.State(); s.Health != sharing.HealthUnknown {
			w.Report(id, s.Health, s.String())
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return w.probes(ctx) })
	g.Go(func() error { return w.events(ctx) })
	return g.Wait()
}

// probes probes each GPU separately, so that one that hangs delays no other.
func (w *Watch) probes(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	silent := silence{missed: map[sharing.GPUID]int{}, gpus: len(w.GPUs)}
	for _, id := range w.GPUs {
		g.Go(func() error {
			t := time.NewTicker(w.Every)
			defer t.Stop()
			for {
				if silent.after(id, w.probe(ctx, id)) && ctx.Err() == nil {
					return fmt.Errorf("no GPU answers any more: %w", sharing.ErrUnavailable)
				}
				select {
				case <-ctx.Done():
					return nil
				case <-t.C:
				}
			}
		})
	}
	return g.Wait()
}

// silence counts for each GPU the probes in a row without an answer.
type silence struct {
	gpus int

	mu     sync.Mutex
	missed map[sharing.GPUID]int
}

// after takes one probe, and reports whether no GPU has answered for so long that the driver itself is gone.
func (s *silence) after(id sharing.GPUID, answered bool) (gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if answered {
		delete(s.missed, id)
		return false
	}
	s.missed[id]++
	if len(s.missed) < s.gpus {
		return false
	}
	for _, n := range s.missed {
		if n < goneProbes {
			return false
		}
	}
	return true
}

// probe looks at one GPU, and reports whether it answered.
func (w *Watch) probe(ctx context.Context, id sharing.GPUID) bool {
	ctx, cancel := context.WithTimeout(ctx, w.Deadline)
	defer cancel()
	l := Sample{Err: w.Driver.Check(ctx, id)}
	if l.Err == nil {
		l.Recovery, l.Sensors = w.Driver.Recovery(ctx, id), w.Driver.Sensors(ctx, id)
	}
	if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return l.Err == nil // the watch is ending: its own cancelled calls say nothing of the GPU
	}
	w.feed(id, func(m *Machine) bool { return m.Probe(l) })
	w.recover(id, l)
	return l.Err == nil
}

func (w *Watch) events(ctx context.Context) error {
	bursts := bursts{log: w.Log, now: time.Now}
	for backoff := time.Second; ctx.Err() == nil; {
		x, err := w.Driver.NextXID(ctx)
		switch {
		case err == nil:
			backoff = time.Second
			bursts.tell(x.GPU, x.XID)
			w.fault(x)
			continue
		case errors.Is(err, sharing.ErrUnsupported):
			w.Log.Info("failed to register for XID events, will use probes for GPU health", "reason", err.Error())
			<-ctx.Done()
			continue
		case ctx.Err() != nil:
			continue
		}
		w.Log.Warn("failed to wait for XID events, will retry", "error", err.Error(), "retry_in", backoff.String())
		if !sleep.For(ctx, backoff) {
			return nil
		}
		backoff = min(2*backoff, time.Minute)
	}
	return nil
}

// fault takes one event. Where the driver does not name the GPU, each may be meant.
func (w *Watch) fault(x XID) {
	id, xid := x.GPU, x.XID
	if w.Fault != nil {
		w.Fault(id, xid, Classify(xid))
	}
	if id != "" && x.GI != WholeGPU && w.ReportInstance != nil && staysInside(xid) {
		w.wound(Instance{id, x.GI}, xid)
		return
	}
	if id != "" {
		w.feed(id, func(m *Machine) bool { return m.XID(xid) })
		return
	}
	for _, each := range w.GPUs {
		w.feed(each, func(m *Machine) bool { return m.Unnamed(xid) })
	}
}

func (w *Watch) feed(id sharing.GPUID, in func(*Machine) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m, ok := w.Machines[id]
	if !ok || !in(m) {
		return
	}
	s := m.State()
	if s.Health == sharing.HealthOK {
		w.Log.Info("GPU became healthy", "gpu", string(id))
	} else {
		w.Log.Warn("GPU stopped accepting grants", "gpu", string(id), "health", s.Health.String(), "reason", s.Reason,
			"remedy", s.Remedy)
	}
	w.Report(id, s.Health, s.String())
}

// wound takes a fault of a MIG instance.
func (w *Watch) wound(in Instance, xid uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.Faulty[in]
	if m == nil {
		m = &Machine{}
		m.Probe(Sample{}) // it was well
		if w.Faulty == nil {
			w.Faulty = map[Instance]*Machine{}
		}
		w.Faulty[in] = m
	}
	if m.XID(xid) {
		w.tellInstance(in, m.State())
	}
}

// recover counts a probe of a GPU for its faulty MIG instances. The sensor values belong to the GPU.
func (w *Watch) recover(gpu sharing.GPUID, l Sample) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for in, m := range w.Faulty {
		if in.GPU != gpu || !m.Probe(Sample{Err: l.Err, Recovery: l.Recovery}) {
			continue
		}
		w.tellInstance(in, m.State())
		if m.State().Health == sharing.HealthOK {
			delete(w.Faulty, in)
		}
	}
}

// tellInstance needs w.mu.
func (w *Watch) tellInstance(in Instance, s State) {
	w.Log.Warn("health of MIG instance changed", "gpu", string(in.GPU), "gi", in.GI, "health", s.Health.String(),
		"reason",
		s.Reason)
	w.ReportInstance(in, s.Health, s.String())
}
