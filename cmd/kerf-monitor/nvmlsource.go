// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kerf-gpu/kerf/internal/nvml"
	"github.com/kerf-gpu/kerf/internal/quiet"
	"github.com/kerf-gpu/kerf/monitor/collect"
	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// driverRetry is how long to wait before a driver that is not there is looked for again.
	driverRetry = time.Second
	// stockEvery is how often it is looked which GPUs there are, and how they are cut.
	stockEvery = 5 * time.Second
	// toldKept is how long what changes slowly is not asked for again, a little less than an interval of a second.
	toldKept = 900 * time.Millisecond
	// stockDeadline bounds one such look.
	stockDeadline = 30 * time.Second
)

// nvmlSource reads GPUs through NVML.
type nvmlSource struct {
	paths []string
	// quiet is asked before a GPU is: the agent may be changing its MIG instances.
	quiet quiet.Dir
	log   *slog.Logger

	mu   sync.Mutex
	lib  *nvml.Library
	gpus map[sharing.GPUID]nvmlGPU
	// told is what each told last when it was asked for all.
	told map[sharing.GPUID]told
}

// told is an answer and when it was.
type told struct {
	at     time.Time
	answer nvml.Telemetry
	lib    *nvml.Library
}

// nvmlGPU is what is known of a GPU between looks.
type nvmlGPU struct {
	info collect.Info
	cut  []instance
}

func newNVMLSource(paths []string, quiet quiet.Dir, log *slog.Logger) *nvmlSource {
	return &nvmlSource{paths: paths, quiet: quiet, log: log, gpus: map[sharing.GPUID]nvmlGPU{}, told: map[sharing.GPUID]told{}}
}

// Name implements collect.Source.
func (s *nvmlSource) Name() string { return "nvml" }

// Driver implements collect.Source.
func (s *nvmlSource) Driver() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lib == nil {
		return ""
	}
	return s.lib.System().DriverVersion
}

// GPUs implements collect.Source. A GPU that was seen once stays, and answers with an error when it is lost.
func (s *nvmlSource) GPUs() []collect.Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]collect.Info, 0, len(s.gpus))
	for _, g := range s.gpus {
		all = append(all, g.info)
	}
	slices.SortFunc(all, func(a, b collect.Info) int { return cmp.Compare(a.Index, b.Index) })
	return all
}

// follow uses the driver while there is one, and looks for it while there is none.
func (s *nvmlSource) follow(ctx context.Context) error {
	said := ""
	for {
		err := s.use(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the monitor is stopping; the error is only of that
		}
		if text := err.Error(); text != said {
			s.log.Warn("no driver in use; looking for one", "reason", text)
			said = text
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(driverRetry):
		}
	}
}

// use opens the driver and takes stock of it, again and again, until it fails or ctx ends.
func (s *nvmlSource) use(ctx context.Context) (err error) {
	lib, err := nvml.Open(ctx, nvml.Options{LibraryPaths: s.paths, Log: s.log})
	if err != nil {
		return fmt.Errorf("open the driver's NVML library: %w", err)
	}
	defer func() {
		s.mu.Lock()
		s.lib = nil
		s.mu.Unlock()
		err = errors.Join(err, lib.Close())
	}()
	t := time.NewTicker(stockEvery)
	defer t.Stop()
	for {
		if err := s.takeStock(ctx, lib); err != nil {
			return fmt.Errorf("take stock of the GPUs: %w", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
		}
	}
}

func (s *nvmlSource) takeStock(ctx context.Context, lib *nvml.Library) error {
	ctx, cancel := context.WithTimeout(ctx, stockDeadline)
	defer cancel()
	// The list is of all GPUs: while one is asked for it is not made, and what was known stays.
	h := newHolds(s.quiet)
	defer h.release()
	s.mu.Lock()
	known := slices.Collect(maps.Keys(s.gpus))
	s.mu.Unlock()
	if err := h.on(known); err != nil {
		s.log.Debug("stock of the GPUs is taken later", "reason", err.Error())
		return nil
	}
	gpus, _, err := lib.GPUs(ctx)
	if err != nil {
		return err
	}
	found := map[sharing.GPUID]nvmlGPU{}
	for _, g := range gpus {
		n := nvmlGPU{info: collect.Info{UUID: g.UUID, Index: g.Index, Minor: g.Minor, Model: g.Model, PCI: g.PCI}}
		if g.MIG {
			if n.cut, err = instancesOf(ctx, lib, g.UUID); err != nil {
				s.log.Warn("how a GPU is cut is not known", "gpu", string(g.UUID), "error", err.Error())
			}
		}
		found[g.UUID] = n
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lib = lib
	maps.Copy(s.gpus, found)
	return nil
}

// Read implements collect.Source.
func (s *nvmlSource) Read(ctx context.Context, gpu collect.Info, since time.Time) collect.Reading {
	s.mu.Lock()
	lib, cut, last := s.lib, s.gpus[gpu.UUID].cut, s.told[gpu.UUID]
	s.mu.Unlock()
	if lib == nil {
		return collect.Reading{Err: fmt.Errorf("read gpu %q: no driver is in use: %w", string(gpu.UUID), sharing.ErrUnavailable)}
	}
	done, err := s.quiet.Read(gpu.UUID)
	if err != nil {
		return collect.Reading{Err: err}
	}
	defer done()
	var before *nvml.Telemetry
	asked := time.Now()
	if last.lib == lib && asked.Sub(last.at) < toldKept {
		before = &last.answer
	}
	t, err := lib.Telemetry(ctx, gpu.UUID, since, before)
	if err != nil {
		return collect.Reading{Err: err}
	}
	if before == nil {
		s.mu.Lock()
		s.told[gpu.UUID] = told{asked, t, lib}
		s.mu.Unlock()
	}
	r := readingOf(t)
	if len(cut) > 0 {
		memory, err := lib.InstanceMemory(ctx, gpu.UUID)
		if err != nil {
			s.log.Debug("memory of mig instances is not known", "gpu", string(gpu.UUID), "error", err.Error())
		}
		r.Device.Instances = devicesOf(cut, memory)
	}
	return r
}
