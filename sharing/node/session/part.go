// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"fmt"
	"time"

	"github.com/kerf-gpu/kerf/internal/nvml"
	"github.com/kerf-gpu/kerf/mig/manager"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend"
	"github.com/kerf-gpu/kerf/sharing/backend/choice"
	"github.com/kerf-gpu/kerf/sharing/node/gpudriver"
)

// partDoor is a driverDoor that knows shared MIG instances, too.
type partDoor struct {
	driverDoor
	cut *manager.Manager
}

// gi is the driver's id of a shared instance. sharing.ErrUnavailable where it is not there now.
func (d *partDoor) gi(id sharing.GPURef) (int, error) {
	if gi, ok := d.cut.GI(id.UUID, id.Instance.Profile, id.Instance.Start); ok {
		return gi, nil
	}
	return 0, fmt.Errorf("MIG instance %s is not there: %w", id, sharing.ErrUnavailable)
}

// Sample implements gpudriver.Reader, as do the others. NVML tells no utilisation of an instance.
func (d *partDoor) Sample(ctx context.Context, id sharing.GPURef) (gpudriver.Sample, error) {
	if !id.IsInstance() {
		return d.driverDoor.Sample(ctx, id.UUID)
	}
	gi, err := d.gi(id)
	if err != nil {
		return gpudriver.Sample{}, err
	}
	leave, err := d.quiet.enter(id.UUID)
	if err != nil {
		return gpudriver.Sample{}, err
	}
	defer leave()
	memory, err := d.lib.InstanceMemory(ctx, id.UUID)
	if err != nil {
		return gpudriver.Sample{}, err
	}
	for _, m := range memory {
		if m.GI == gi {
			return gpudriver.Sample{Used: m.Memory.Used, Utilization: -1}, nil
		}
	}
	return gpudriver.Sample{}, fmt.Errorf("read memory of MIG instance %s: %w", id, sharing.ErrUnavailable)
}

// Processes lists those of the instance.
func (d *partDoor) Processes(ctx context.Context, id sharing.GPURef) ([]gpudriver.ProcessUse, error) {
	if !id.IsInstance() {
		return d.driverDoor.Processes(ctx, id.UUID)
	}
	gi, err := d.gi(id)
	if err != nil {
		return nil, err
	}
	leave, err := d.quiet.enter(id.UUID)
	if err != nil {
		return nil, err
	}
	defer leave()
	procs, err := d.lib.ProcessesIn(ctx, id.UUID, gi)
	return usesOf(procs), err
}

// ProcessTime is not available for instances.
func (d *partDoor) ProcessTime(ctx context.Context, id sharing.GPURef, since time.Time) (sharing.TimeUse, error) {
	if id.IsInstance() {
		return sharing.TimeUse{}, fmt.Errorf("time of processes on MIG instance %s: %w", id, sharing.ErrUnsupported)
	}
	return d.driverDoor.ProcessTime(ctx, id.UUID, since)
}

// Power is the whole GPU's alone.
func (d *partDoor) Power(ctx context.Context, id sharing.GPURef) (float64, error) {
	if id.IsInstance() {
		return 0, fmt.Errorf("power of MIG instance %s: %w", id, sharing.ErrUnsupported)
	}
	return d.driverDoor.Power(ctx, id.UUID)
}

// partReport asks each backend what it can do for shares of a MIG instance. The driver's limits and MPS hold none: the
// first are of a whole GPU, and Kerf runs no daemon of the second on an instance.
func (s *Session) partReport(ctx context.Context, lib *nvml.Library, g sharing.GPU) choice.Report {
	no := func(reason string) choice.Support {
		return choice.Support{Answer: choice.NotSupported, Reason: reason,
			Remedy: "list libkerf or reactive in the pool's backends"}
	}
	r := choice.ReportOf(no("the driver limits no memory inside a MIG instance"), s.preloadProbe(lib).Of(g),
		backend.ProbeWatch(ctx, lib, s.Options.Driver.PIDs, g))
	r.SetMPS(no("Kerf runs no MPS inside a MIG instance"))
	return r
}
