// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package contextprobe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf/contextsize"
)

const (
	// lookEvery is how often the GPUs are looked at.
	lookEvery = time.Second
	// within bounds one measurement. The first context after the driver was loaded can take seconds.
	within = 30 * time.Second
	// listEvery is how often the driver is asked while the helper has its context.
	listEvery = 50 * time.Millisecond
)

// errGranted ends a measurement because its GPU is needed.
var errGranted = errors.New("the GPU is in use")

// Helper is a process that makes one context.
type Helper interface {
	// PID is the helper, in the PID namespace of the driver's lists.
	PID() int
	// Ready waits until it has its context.
	Ready(ctx context.Context) error
	// Stop ends it and waits until it has ended. An error says that it did not end.
	Stop() error
}

// Prober measures the contexts of kinds whose size is not known, one at a time. All fields are required.
type Prober struct {
	Sizes *Sizes
	Log   *slog.Logger
	// GPUs are the GPUs as they are now.
	GPUs func() []contextsize.GPU
	// Changed is closed when GPUs may say something else.
	Changed func() <-chan struct{}
	// List is the driver's list of one GPU.
	List func(ctx context.Context, gpu sharing.GPUID) ([]contextsize.Use, error)
	// Start starts a helper on a GPU.
	Start func(ctx context.Context, gpu sharing.GPUID) (Helper, error)

	plan contextsize.Planner
	said map[string]bool
}

// Run measures until ctx ends. It waits for its helper.
func (p *Prober) Run(ctx context.Context) error {
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		gpu, ok := p.plan.Next(time.Now(), p.GPUs(), p.Sizes.Known)
		if !ok {
			continue
		}
		err := p.measure(ctx, gpu)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errGranted), errors.Is(err, sharing.ErrConflict):
			p.plan.Busy(gpu.ID)
		case err != nil:
			p.plan.Failed(gpu.Kind, time.Now())
			p.warn(gpu, err)
		}
	}
}

// warn logs each reason once.
func (p *Prober) warn(gpu contextsize.GPU, err error) {
	text := gpu.Kind.String() + ": " + err.Error()
	if p.said[text] {
		return
	}
	if p.said == nil {
		p.said = map[string]bool{}
	}
	p.said[text] = true
	p.Log.Warn("failed to measure a context, an upper bound counts", "model", gpu.Kind.Model, "driver", gpu.Kind.Driver,
		"bound", contextsize.Bound(gpu.Kind.Model).String(), "error", err.Error())
}

// measure measures on one GPU, unless another process uses it. It ends at once when the GPU is needed.
func (p *Prober) measure(ctx context.Context, gpu contextsize.GPU) (err error) {
	list, err := p.List(ctx, gpu.ID)
	if err != nil {
		return fmt.Errorf("measure context: %w", err)
	}
	if len(list) > 0 {
		return fmt.Errorf("measure context: process %d uses the GPU: %w", list[0].PID, sharing.ErrConflict)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	ctx, expire := context.WithTimeout(ctx, within)
	var watch sync.WaitGroup
	watch.Go(func() { p.watch(ctx, gpu.ID, cancel) })
	defer watch.Wait()
	defer cancel(nil)
	defer expire()
	size, err := p.run(ctx, gpu.ID)
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("measure context: %w", cause)
	}
	if err != nil {
		return err
	}
	p.Log.Info("measured size of a CUDA context", "model", gpu.Kind.Model, "driver", gpu.Kind.Driver, "bytes",
		uint64(size))
	return p.Sizes.Set(gpu.Kind, size)
}

// watch calls cancel when the GPU is idle no more.
func (p *Prober) watch(ctx context.Context, gpu sharing.GPUID, cancel context.CancelCauseFunc) {
	for {
		changed := p.Changed()
		if !slices.ContainsFunc(p.GPUs(), func(g contextsize.GPU) bool { return g.ID == gpu && g.Idle }) {
			cancel(errGranted)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// run has a helper make a context, and reads from the driver what it takes.
func (p *Prober) run(ctx context.Context, gpu sharing.GPUID) (size sharing.Bytes, err error) {
	h, err := p.Start(ctx, gpu)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, h.Stop()) }()
	if err := h.Ready(ctx); err != nil {
		return 0, err
	}
	m := contextsize.Measurement{PID: h.PID()}
	t := time.NewTicker(listEvery)
	defer t.Stop()
	for {
		list, err := p.List(ctx, gpu)
		if err != nil {
			return 0, fmt.Errorf("measure context: %w", err)
		}
		if size, done, err := m.Step(list); done || err != nil {
			return size, err
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("measure context: the driver lists no such process: %w", ctx.Err())
		case <-t.C:
		}
	}
}
