// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"time"

	"github.com/kerf-gpu/kerf/internal/nvml"
	"github.com/kerf-gpu/kerf/monitor/health"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/node/gpudriver"
)

// driverDoor adapts package nvml to the interfaces of the runtime and of the health check.
type driverDoor struct {
	lib     *nvml.Library
	version string
	// quiet keeps its calls off a GPU whose instances are being changed.
	quiet *gate
}

// Version implements gpudriver.Reader.
func (d *driverDoor) Version() string { return d.version }

// Sample implements gpudriver.Reader.
func (d *driverDoor) Sample(ctx context.Context, id sharing.GPUID) (gpudriver.Sample, error) {
	leave, err := d.quiet.enter(id)
	if err != nil {
		return gpudriver.Sample{}, err
	}
	defer leave()
	m, err := d.lib.Memory(ctx, id)
	if err != nil {
		return gpudriver.Sample{}, err
	}
	s := gpudriver.Sample{Used: m.Used, Utilization: -1}
	if u, err := d.lib.Utilization(ctx, id); err == nil {
		s.Utilization = u
	}
	return s, nil
}

// Processes implements gpudriver.Reader.
func (d *driverDoor) Processes(ctx context.Context, id sharing.GPUID) ([]gpudriver.ProcessUse, error) {
	leave, err := d.quiet.enter(id)
	if err != nil {
		return nil, err
	}
	defer leave()
	procs, err := d.lib.Processes(ctx, id)
	if err != nil {
		return nil, err
	}
	return usesOf(procs), nil
}

func usesOf(procs []nvml.Process) []gpudriver.ProcessUse {
	out := make([]gpudriver.ProcessUse, 0, len(procs))
	for _, p := range procs {
		out = append(out, gpudriver.ProcessUse{PID: p.PID, Used: p.Used, Known: p.Known, MPS: p.MPS})
	}
	return out
}

// ProcessTime implements gpudriver.Reader.
func (d *driverDoor) ProcessTime(ctx context.Context, id sharing.GPUID, since time.Time) (sharing.TimeUse, error) {
	leave, err := d.quiet.enter(id)
	if err != nil {
		return sharing.TimeUse{}, err
	}
	defer leave()
	return d.lib.ProcessTime(ctx, id, since)
}

// Power implements gpudriver.Reader.
func (d *driverDoor) Power(ctx context.Context, id sharing.GPUID) (float64, error) {
	leave, err := d.quiet.enter(id)
	if err != nil {
		return 0, err
	}
	defer leave()
	milliwatts, err := d.lib.Power(ctx, id)
	return float64(milliwatts) / 1000, err
}

// Check implements health.Driver. While the MIG mode or the instances of a GPU change, the manager of these answers for
// it.
func (d *driverDoor) Check(ctx context.Context, id sharing.GPUID) error {
	leave, err := d.quiet.enter(id)
	if err != nil {
		return nil
	}
	defer leave()
	return d.lib.Check(ctx, id)
}

// Recovery implements health.Driver.
func (d *driverDoor) Recovery(ctx context.Context, id sharing.GPUID) health.Recovery {
	leave, err := d.quiet.enter(id)
	if err != nil {
		return health.Recovery{}
	}
	defer leave()
	r, err := d.lib.RecoveryAction(ctx, id)
	if err != nil {
		return health.Recovery{}
	}
	if r == nvml.RecoveryNone {
		return health.Recovery{Known: true}
	}
	return health.Recovery{Known: true, Action: r.String()}
}

// Sensors implements health.Driver.
func (d *driverDoor) Sensors(ctx context.Context, id sharing.GPUID) health.Sensors {
	leave, err := d.quiet.enter(id)
	if err != nil {
		return health.Sensors{}
	}
	defer leave()
	s, err := d.lib.Signs(ctx, id)
	if err != nil {
		return health.Sensors{}
	}
	return sensorsOf(s)
}

// sensorsOf are a GPU's signs as the watch takes them.
func sensorsOf(s nvml.Signs) health.Sensors {
	return health.Sensors{
		Uncorrected: count(s.Uncorrected), Links: count(s.Links),
		RemapPending: flag(s.RemapPending), RemapFailed: flag(s.RemapFailed),
		Overheat: flag(s.ThermalSlowdown), PowerBrake: flag(s.PowerBrake),
	}
}

func count(n *uint64) health.Count {
	if n == nil {
		return health.Count{}
	}
	return health.Count{Known: true, N: *n}
}

func flag(b *bool) health.Flag {
	switch {
	case b == nil:
		return health.FlagUnknown
	case *b:
		return health.Yes
	}
	return health.No
}

// NextXID implements health.Driver.
func (d *driverDoor) NextXID(ctx context.Context) (health.XID, error) {
	ev, err := d.lib.WaitEvent(ctx)
	x := health.XID{GPU: ev.GPU, GI: health.WholeGPU, XID: ev.XID}
	if ev.GI != nil {
		x.GI = int(*ev.GI)
	}
	return x, err
}
