// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/internal/filelock"
	"github.com/kerf-gpu/kerf/internal/nvml"
	"github.com/kerf-gpu/kerf/internal/sleep"
	"github.com/kerf-gpu/kerf/monitor/health"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend"
	"github.com/kerf-gpu/kerf/sharing/backend/choice"
	"github.com/kerf-gpu/kerf/sharing/backend/driver"
	"github.com/kerf-gpu/kerf/sharing/node"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
	"github.com/kerf-gpu/kerf/sharing/node/gpudriver"
	"github.com/kerf-gpu/kerf/sharing/node/options"
	"github.com/kerf-gpu/kerf/sharing/node/settings"
)

const (
	// driverRetry is how long to wait before a driver that is not there is looked for again.
	driverRetry = time.Second
	// reprobeEvery is how often an unknown level is probed again, and a GPU that does not answer. The driver has no
	// event for either.
	reprobeEvery = 5 * time.Second
	// openDeadline bounds taking stock of a driver that has just appeared.
	openDeadline = 60 * time.Second
)

// Run uses the driver while there is one, and looks for it while there is none.
func (s *Session) Run(ctx context.Context) error {
	said := ""
	for {
		if d := drainOf(s); d.drained() {
			s.machines = nil // The next driver is loaded again.
			s.mendInstances()
			d.stayReleased(ctx)
		}
		err := s.useDriver(ctx)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the agent is stopping; the error is only of that
		case errors.Is(err, errDrained):
			continue
		case errors.Is(err, sharing.ErrConflict):
			return err // another agent has a GPU: this one has no business here
		case errors.Is(err, settings.ErrRescan):
			s.Log.Info("started a new inventory of GPUs", "reason", err.Error())
			continue
		}
		s.machines = nil // so the next driver is loaded again
		s.mendInstances()
		s.Runtime.Conditions.Set(conditions.Rescan, "")
		if text := err.Error(); text != said {
			s.Log.Warn("failed to find a driver, will retry", "reason", text)
			said = text
		}
		s.Runtime.Detach(err.Error())
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(driverRetry):
		}
	}
}

// useDriver takes the driver into use and returns when it is gone, always with an error but at the end.
func (s *Session) useDriver(ctx context.Context) (err error) {
	open, cancel := context.WithTimeout(ctx, openDeadline)
	defer cancel()
	lib, err := nvml.Open(open, nvml.Options{LibraryPaths: s.Options.Driver.Libraries, ReadOnly: s.Options.ReadOnly(),
		Log: s.Log})
	if err != nil {
		err = fmt.Errorf("open the driver's NVML library: %w", err)
		if fix := s.Options.Driver.By.Fix(nvml.LackOf(err)); fix != "" {
			err = fmt.Errorf("%w; %s", err, fix)
		}
		return err
	}
	defer func() { err = errors.Join(err, lib.Close()) }()
	all, leftOut, err := lib.GPUs(open)
	if err != nil {
		return fmt.Errorf("take stock of the GPUs: %w", err)
	}
	s.Runtime.Settings().SetInventory(all)
	u := &used{Session: s, lib: lib, all: all, gpus: s.Runtime.Settings().Used(), leftOut: leftOut, quiet: newGate()}
	release, err := lockGPUs(open, s.Options.Dirs, u.gpus)
	if err != nil {
		return err
	}
	defer release()
	if u.cut, err = s.cutter(lib, u.gpus, u.quiet); err != nil {
		return err
	}
	if u.all, u.leftOut, err = s.firstCut(open, lib, u.cut, u.all, u.leftOut); err != nil {
		return err
	}
	s.Runtime.Settings().SetInventory(u.all)
	u.gpus = locked(u.all, u.gpus)
	s.Runtime.SetMIG(u.cut)
	s.migManager.Store(u.cut)
	defer func() {
		s.migManager.Store(nil)
		s.Runtime.SetMIG(nil)
		// A running change ends, or is stopped, before the next manager reads the GPUs.
		u.cut.Stop(context.WithoutCancel(ctx))
		s.cutBefore = u.cut
	}()
	if err := s.mps.use(open, lib, s.Runtime.Served()); err != nil {
		s.Log.Error("failed to recover MPS daemons", "error", err.Error())
	}
	defer s.mps.lib.Store(nil)
	if err := u.attach(open); err != nil {
		return err
	}
	err = u.run(ctx)
	if errors.Is(err, settings.ErrRescan) {
		// Grants stay as they are. New ones wait from now on, as long as the driver is closed.
		s.Runtime.Conditions.Set(conditions.Rescan, err.Error())
	}
	return err
}

// locked are the GPUs that the session has locks for, as they are now.
func locked(now, had []sharing.GPU) []sharing.GPU {
	ids := idsOf(had)
	return slices.DeleteFunc(slices.Clone(now), func(g sharing.GPU) bool { return !slices.Contains(ids, g.UUID) })
}

func idsOf(gpus []sharing.GPU) []sharing.GPUID {
	ids := make([]sharing.GPUID, 0, len(gpus))
	for _, g := range gpus {
		ids = append(ids, g.UUID)
	}
	return ids
}

// reprobe asks again for the level of GPUs whose first probe gave no answer, such as a lost one. It also probes
// backends that the config did not list at first. It sleeps while there is none.
func (s *Session) reprobe(ctx context.Context, lib *nvml.Library, att gpudriver.Attached) error {
	backend := s.backend(lib)
	levels := maps.Clone(att.Levels)
	listed := listsServed(s.Runtime)
	for {
		changed := s.Runtime.Changed()
		before := listed
		listed = listsServed(s.Runtime)
		open := slices.DeleteFunc(slices.Clone(att.GPUs), func(g sharing.GPU) bool {
			return !levels[g.Ref()].Undecided() && (levels[g.Ref()].AskedMPS() || !listed)
		})
		switch {
		case len(open) == 0:
			select {
			case <-ctx.Done():
				return nil
			case <-changed:
			}
			continue
		case listed == before && !sleep.For(ctx, reprobeEvery):
			return nil
		}
		for _, g := range open {
			probe, cancel := context.WithTimeout(ctx, health.Deadline)
			rep := s.report(probe, lib, backend, g)
			cancel()
			if !rep.Undecided() {
				s.Runtime.Amend(func(att *gpudriver.Attached) { att.Levels[g.Ref()] = rep })
				levels[g.Ref()] = rep
			}
		}
	}
}

// listsServed reports whether the settings list a backend that serves programs by a daemon.
func listsServed(r *node.Runtime) bool {
	return slices.ContainsFunc(sharing.Backends(),
		func(b sharing.Backend) bool { return backend.PropertiesOf(b).Served && r.Settings().Lists(b) })
}

// rescan looks for GPUs that were left out of the inventory, for example a lost GPU that is back. It returns
// settings.ErrRescan if there is one that is not in had, so that the inventory is read again. Their number proves
// nothing: another may be lost meanwhile.
func rescan(ctx context.Context, lib *nvml.Library, had []sharing.GPUID) error {
	t := time.NewTicker(reprobeEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		look, cancel := context.WithTimeout(ctx, openDeadline)
		gpus, _, err := lib.GPUs(look)
		cancel()
		fresh := func(g sharing.GPU) bool { return !slices.Contains(had, g.UUID) }
		if err == nil && slices.ContainsFunc(gpus, fresh) {
			return fmt.Errorf("a GPU that was left out answers now: %w", settings.ErrRescan)
		}
	}
}

// backend is the driver's memory limits, with scratch cgroups of Kerf to probe them on. One that a crash leaves behind
// is empty, and removed at the next start.
func (s *Session) backend(lib *nvml.Library) *driver.Driver {
	return driver.New(lib, driver.InHierarchy(s.Cgroups,
		func() string { return path.Join(s.Parent, "probe-"+s.NewID()) }))
}

// report asks each backend what it can do for shares of the GPU.
func (s *Session) report(ctx context.Context, lib *nvml.Library, driver *driver.Driver, g sharing.GPU) choice.Report {
	if g.Ref().IsInstance() {
		return s.partReport(ctx, lib, g)
	}
	if g.SystemMemory {
		return choice.NoShares(sharing.NoShares)
	}
	rep := choice.ReportOf(driver.Probe(ctx, g), s.preloadProbe(lib).Of(g),
		backend.ProbeWatch(ctx, lib, s.Options.Driver.PIDs, g))
	if listsServed(s.Runtime) {
		rep.SetMPS(s.mps.probe(ctx, g))
	}
	for _, b := range sharing.Backends() {
		if p, asked := rep[b]; asked && !p.OK() {
			s.Log.Warn("backend probe found no support on GPU", "backend", b.String(), "gpu", string(g.UUID), "answer",
				p.Answer.String(), "reason", p.Reason, "remedy", p.Remedy)
		}
	}
	return rep
}

// lockGPUs keeps other agents off the GPUs until release is called.
func lockGPUs(ctx context.Context, dirs options.Dirs, gpus []sharing.GPU) (release func(), err error) {
	var locks []*filelock.Lock
	release = func() {
		for _, l := range locks {
			l.Release()
		}
	}
	for _, g := range gpus {
		l, err := filelock.Take(ctx, filepath.Join(dirs.Locks, string(g.UUID)+".lock"),
			fmt.Sprintf("GPU %d (%s)", g.Index, g.UUID), dirs.Dir)
		if err != nil {
			release()
			return nil, err
		}
		locks = append(locks, l)
	}
	return release, nil
}

// attachment asks each GPU whether it answers and which level it can give.
func (s *Session) attachment(ctx context.Context, lib *nvml.Library, gpus []sharing.GPU,
	leftOut []error) gpudriver.Attached {
	att := gpudriver.Attached{CUDAVersion: lib.System().CUDA(),
		Levels: make(map[sharing.GPURef]choice.Report, len(gpus))}
	for _, err := range leftOut {
		att.LeftOut = append(att.LeftOut, err.Error())
	}
	backend := s.backend(lib)
	if lib.HasMemoryLimits() {
		att.Caps = backend
	}
	for _, g := range gpus {
		att.GPUs = append(att.GPUs, g)
		att.Levels[g.Ref()] = s.report(ctx, lib, backend, g)
	}
	return att
}
