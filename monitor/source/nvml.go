// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package source

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
	"github.com/kerf-gpu/kerf/internal/quiesce"
	"github.com/kerf-gpu/kerf/monitor/attribution"
	"github.com/kerf-gpu/kerf/monitor/collect"
	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// driverRetry is how long to wait before a driver that is not there is looked for again.
	driverRetry = time.Second
	// stockEvery is how often the list of GPUs and their instances is read.
	stockEvery = 5 * time.Second
	// restockEvery is how often all is asked for that does not change by itself, such as a GPU's model.
	restockEvery = time.Minute
	// instancesEvery is how often it is looked where MIG instances are, when they are the same by number.
	instancesEvery = 10 * time.Second
	// stockDeadline bounds one such look.
	stockDeadline = 30 * time.Second
)

// NVML reads GPUs through NVML.
type NVML struct {
	paths []string
	// quiet is asked before a GPU is: the agent may be changing its MIG instances.
	quiet *quiesce.Reader
	log   *slog.Logger

	mu  sync.Mutex
	lib *nvml.Library
	// stuck says why a driver that was in use is not found; empty before the first one, and while the agent asks.
	stuck string
	gpus  map[sharing.GPUID]nvmlGPU
	// last are the last answers, by GPU.
	last map[sharing.GPUID]answer
	// stocked is when all of the GPUs was asked for.
	stocked time.Time
	// profiles are the sizes of MIG instances that GPUs have, which do not change; takeStock alone uses it.
	profiles map[sharing.GPUID][]nvml.MIGProfile
}

// answer is telemetry with the library that gave it and the processes of the reading.
type answer struct {
	answer    nvml.Telemetry
	lib       *nvml.Library
	processes []attribution.Process
}

// nvmlGPU is what is known of a GPU between looks.
type nvmlGPU struct {
	info      collect.Info
	mig       bool
	instances []instance
	// instancesAt is when the instances were read; zero if they are unknown.
	instancesAt time.Time
}

// NewNVML makes a source that looks for NVML's library at paths, and asks quiet before it asks the driver about a GPU.
func NewNVML(paths []string, quiet *quiesce.Reader, log *slog.Logger) *NVML {
	return &NVML{paths: paths, quiet: quiet, log: log, gpus: map[sharing.GPUID]nvmlGPU{},
		last: map[sharing.GPUID]answer{}}
}

// Name implements collect.Source.
func (s *NVML) Name() string { return "nvml" }

// Driver implements collect.Source.
func (s *NVML) Driver() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lib == nil {
		return ""
	}
	return s.lib.System().DriverVersion
}

// GPUs implements collect.Source. A GPU that was seen once stays, and answers with an error when it is lost.
func (s *NVML) GPUs() []collect.Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]collect.Info, 0, len(s.gpus))
	for _, g := range s.gpus {
		all = append(all, g.info)
	}
	slices.SortFunc(all, func(a, b collect.Info) int { return cmp.Compare(a.Index, b.Index) })
	return all
}

// Run uses the driver while there is one, and looks for it while there is none.
func (s *NVML) Run(ctx context.Context) error {
	said := ""
	for {
		err := s.use(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the monitor is stopping; the error is only of that
		}
		s.lost(err)
		if text := err.Error(); text != said {
			s.log.Warn("failed to find a driver, will retry", "reason", text)
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
func (s *NVML) use(ctx context.Context) (err error) {
	// The agent may have to reset a GPU; then no other process may have the library open.
	h := newHolds(s.quiet)
	defer h.release()
	if err := h.on([]sharing.GPUID{quiesce.Library}); err != nil {
		return err
	}
	lib, err := nvml.Open(ctx, nvml.Options{LibraryPaths: s.paths, ReadOnly: true, Log: s.log})
	if err != nil {
		return fmt.Errorf("open the driver's NVML library: %w", err)
	}
	defer func() {
		s.mu.Lock()
		s.lib = nil
		s.mu.Unlock()
		err = errors.Join(err, lib.Close())
	}()
	s.profiles = map[sharing.GPUID][]nvml.MIGProfile{}
	t, ask := time.NewTicker(stockEvery), time.NewTicker(askedEvery)
	defer t.Stop()
	defer ask.Stop()
	for {
		if err := s.takeStock(ctx, lib); err != nil {
			return fmt.Errorf("take stock of the GPUs: %w", err)
		}
		for due := false; !due; {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-t.C:
				due = true
			case <-ask.C:
				if err := h.on([]sharing.GPUID{quiesce.Library}); err != nil {
					return err
				}
			}
		}
	}
}

func (s *NVML) takeStock(ctx context.Context, lib *nvml.Library) error {
	ctx, cancel := context.WithTimeout(ctx, stockDeadline)
	defer cancel()
	// The list is of all GPUs: while one is asked for it is not made, and what was known stays.
	h := newHolds(s.quiet)
	defer h.release()
	s.mu.Lock()
	known := slices.Collect(maps.Keys(s.gpus))
	s.mu.Unlock()
	if err := h.on(known); err != nil {
		s.log.Debug("postponed the inventory of GPUs", "reason", err.Error())
		return nil
	}
	s.mu.Lock()
	found, whole := maps.Clone(s.gpus), s.lib != lib || time.Since(s.stocked) >= restockEvery
	s.mu.Unlock()
	if !whole {
		changed, err := s.changed(ctx, lib, found)
		if err != nil {
			return err
		}
		whole = changed
	}
	if whole {
		gpus, _, err := lib.GPUs(ctx)
		if err != nil {
			return err
		}
		for _, g := range gpus {
			n := found[g.UUID]
			n.info = collect.Info{UUID: g.UUID, Index: g.Index, Minor: g.Minor, Model: g.Model, PCI: g.PCI}
			if n.mig != g.MIG {
				n.mig, n.instances, n.instancesAt = g.MIG, nil, time.Time{}
			}
			found[g.UUID] = n
		}
	}
	for id, g := range found {
		if g.mig && time.Since(g.instancesAt) >= instancesEvery {
			found[id] = s.readInstances(ctx, lib, g)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lib, s.gpus, s.stuck = lib, found, ""
	if whole {
		s.stocked = time.Now()
	}
	return nil
}

// changed asks, with few calls, whether there are other GPUs than were found, or others in MIG mode.
func (s *NVML) changed(ctx context.Context, lib *nvml.Library, found map[sharing.GPUID]nvmlGPU) (bool, error) {
	n, err := lib.Count(ctx)
	if err != nil || n != len(found) {
		return true, err
	}
	for id, g := range found {
		mode, err := lib.MIGMode(ctx, id)
		if err != nil && !errors.Is(err, sharing.ErrUnsupported) || mode.Current != g.mig {
			return true, nil // a GPU that does not answer is found out about with all others
		}
	}
	return false, nil
}

// readInstances finds out where a GPU's MIG instances are.
func (s *NVML) readInstances(ctx context.Context, lib *nvml.Library, g nvmlGPU) nvmlGPU {
	var err error
	if s.profiles[g.info.UUID] == nil {
		s.profiles[g.info.UUID], err = lib.MIGProfiles(ctx, g.info.UUID)
	}
	var list []nvml.MIGInstance
	if err == nil {
		list, err = lib.MIGSlots(ctx, g.info.UUID)
	}
	if err != nil {
		s.log.Warn("failed to read the MIG layout of GPU", "gpu", string(g.info.UUID), "error", err.Error())
		g.instancesAt = time.Time{}
		return g
	}
	g.instances, g.instancesAt = instancesOf(s.profiles[g.info.UUID], list), time.Now()
	return g
}

// Read implements collect.Source.
func (s *NVML) Read(ctx context.Context, gpu collect.Info) collect.Reading {
	return s.read(ctx, gpu, elsewhere{})
}

// elsewhere is what another source reports of a GPU. The driver is not asked for better; the rest counts if the driver
// does not report it.
type elsewhere struct{ better, rest map[collect.Field]float64 }

// read asks for what is not known better.
func (s *NVML) read(ctx context.Context, gpu collect.Info, known elsewhere) collect.Reading {
	s.mu.Lock()
	lib, g, last := s.lib, s.gpus[gpu.UUID], s.last[gpu.UUID]
	s.mu.Unlock()
	if lib == nil {
		return collect.Reading{Err: fmt.Errorf("read gpu %q: no driver is in use: %w", string(gpu.UUID),
			sharing.ErrUnavailable)}
	}
	done, err := s.quiet.Read(gpu.UUID)
	if err != nil {
		s.forget(gpu.UUID) // it may have other instances when it comes back
		return collect.Reading{Err: err}
	}
	defer done()
	ask := nvml.TelemetryRequest{Instances: g.mig, Skip: func(x nvml.Sensor) bool {
		f, _ := fieldOf(x)
		_, there := known.better[f]
		return there
	}}
	if last.lib == lib {
		ask.Before = &last.answer
	}
	t, err := lib.Telemetry(ctx, gpu.UUID, ask)
	if err != nil {
		return collect.Reading{Err: err}
	}
	r := readingOf(t, known, last.processes)
	s.mu.Lock()
	s.last[gpu.UUID] = answer{t, lib, r.Device.Processes}
	s.mu.Unlock()
	if g.mig {
		if !sameInstances(g.instances, t.Instances) {
			s.rescan(gpu.UUID)
		}
		r.Device.Instances = devicesOf(g.instances, t.Instances)
	}
	return r
}

// forget drops the last answer of a GPU, and the places of its MIG instances.
func (s *NVML) forget(id sharing.GPUID) {
	s.mu.Lock()
	delete(s.last, id)
	s.mu.Unlock()
	s.rescan(id)
}

// rescan has the places of a GPU's MIG instances read again at the next inventory.
func (s *NVML) rescan(id sharing.GPUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g, ok := s.gpus[id]; ok {
		g.instancesAt = time.Time{}
		s.gpus[id] = g
	}
}
