// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/kerf-gpu/kerf/internal/nvml"
	"github.com/kerf-gpu/kerf/mig/manager"
	"github.com/kerf-gpu/kerf/monitor/health"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
	"github.com/kerf-gpu/kerf/sharing/node/gpudriver"
	"github.com/kerf-gpu/kerf/sharing/node/settings"
	"golang.org/x/sync/errgroup"
)

// used is a driver in use.
type used struct {
	*Session
	lib   *nvml.Library
	quiet *gate
	cut   *manager.Manager
	// all are the driver's GPUs. gpus are those of them that Kerf manages, and parts their shared MIG instances.
	all, gpus, parts []sharing.GPU
	leftOut          []error
	att              gpudriver.Attached
}

// attach gives the driver to the runtime.
func (u *used) attach(open context.Context) error {
	u.parts = partsOf(u.Runtime, u.cut, u.gpus)
	u.att = u.attachment(open, u.lib, slices.Concat(u.gpus, u.parts), u.leftOut)
	u.att.Driver = &partDoor{driverDoor{lib: u.lib, version: u.lib.System().DriverVersion, quiet: u.quiet}, u.cut}
	if err := u.Runtime.Attach(open, u.att); err != nil {
		return fmt.Errorf("take the driver into use: %w", err)
	}
	u.Runtime.Conditions.Set(conditions.Rescan, "")
	u.Log.Info("connected to driver", "version", u.att.Driver.Version(), "gpus", len(u.gpus), "memory_limits",
		u.lib.HasMemoryLimits())
	return nil
}

// run watches the driver until it is gone, or must be opened again.
func (u *used) run(ctx context.Context) error {
	w := &health.Watch{
		Driver: &driverDoor{lib: u.lib, quiet: u.quiet}, GPUs: idsOf(u.gpus), Log: u.Log,
		Report: u.Runtime.SetHealth, Every: health.Interval, Deadline: health.Deadline, Machines: u.machines,
		Faulty: u.faulty.machines,
		ReportInstance: func(in health.Instance, h sharing.Health, reason string) {
			u.tellInstance(u.cut, in, h,
				reason)
		},
		Fault: func(gpu sharing.GPUID, xid uint64, class health.Class) {
			u.Events.XID(string(gpu), xid, class.String())
		},
	}
	defer func() { u.machines, u.faulty.machines = w.Machines, w.Faulty }()
	r := settings.Reconciler{Log: u.Log, Options: u.Options, Runtime: u.Runtime, Boot: u.Boot, Library: u.lib,
		GPUs: u.gpus, MPSChanged: u.mps.changedModes}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return w.Run(ctx) })
	g.Go(func() error { return drainOf(u.Session).await(ctx) })
	g.Go(func() error { return u.reprobe(ctx, u.lib, u.att) })
	g.Go(func() error { return r.Run(ctx) })
	g.Go(func() error { return u.keepCut(ctx, u.lib, u.cut, u.gpus, u.parts) })
	g.Go(func() error { return u.contextProber(u.lib, u.att.Driver).Run(ctx) })
	if len(u.leftOut) > 0 {
		g.Go(func() error { return rescan(ctx, u.lib, idsOf(u.all)) })
	}
	err := g.Wait()
	return cmp.Or(err, ctx.Err()) // the context of the group has ended
}
