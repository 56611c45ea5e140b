// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package live connects the executor of package exec to a real driver. It translates what package nvml reports to the
// types of mig and exec.
//
// It decides nothing and keeps only each GPU's table of profiles, which does not change while a driver is loaded.
package live

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/kerf-gpu/kerf/internal/nvml"
	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/mig/exec"
	"github.com/kerf-gpu/kerf/sharing"
)

// Driver is an exec.Driver. It is made by New, and is safe for concurrent use.
type Driver struct {
	lib *nvml.Library

	mu     sync.Mutex
	tables map[sharing.GPUID]*mig.Table
}

// New returns the Driver of an open library. Errors of its methods are nvml's.
func New(lib *nvml.Library) *Driver { return &Driver{lib: lib, tables: map[sharing.GPUID]*mig.Table{}} }

// Mode reads the MIG mode.
func (d *Driver) Mode(ctx context.Context, gpu sharing.GPUID) (exec.Mode, error) {
	m, err := d.lib.MIGMode(ctx, gpu)
	if err != nil {
		return exec.Mode{}, err //nolint:wrapcheck // it names call and GPU, here and below
	}
	reset, err := d.lib.MIGNeedsReset(ctx, gpu)
	return exec.Mode{Current: m.Current, Pending: m.Pending, NeedsReset: reset}, err //nolint:wrapcheck // as above
}

// SetMode sets the MIG mode, and returns whether it is current.
func (d *Driver) SetMode(ctx context.Context, gpu sharing.GPUID, on bool) (bool, error) {
	a, err := d.lib.SetMIGMode(ctx, gpu, on)
	return err == nil && a == nvml.ActivationDone, err //nolint:wrapcheck // as above
}

// Table returns the MIG geometry of the GPU. Errors are also those of mig.NewTable.
func (d *Driver) Table(ctx context.Context, gpu sharing.GPUID) (*mig.Table, error) {
	d.mu.Lock()
	t := d.tables[gpu]
	d.mu.Unlock()
	if t != nil {
		return t, nil
	}
	profiles, err := d.lib.MIGProfiles(ctx, gpu)
	if err != nil {
		return nil, err //nolint:wrapcheck // as above
	}
	list := make([]mig.Profile, len(profiles))
	for i, p := range profiles {
		list[i] = mig.Profile{
			ID: p.ID, Name: p.Name, Compute: p.Compute, Memory: p.Memory, SMs: p.SMs, MaxInstances: p.MaxInstances,
			Size:    p.Size,
			Starts:  p.Starts,
			Engines: mig.Engines{Decoders: p.Decoders, Encoders: p.Encoders, JPEGs: p.JPEGs, OFAs: p.OFAs},
		}
	}
	if t, err = mig.NewTable(list); err != nil {
		return nil, fmt.Errorf("mig profiles of gpu %q: %w", string(gpu), err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tables[gpu] = t
	return t, nil
}

// Instances lists the GPU instances, with their MIG devices.
func (d *Driver) Instances(ctx context.Context, gpu sharing.GPUID) ([]exec.Instance, error) {
	list, err := d.lib.MIGInstances(ctx, gpu)
	if err != nil || len(list) == 0 {
		return nil, err //nolint:wrapcheck // as above
	}
	devices, err := d.lib.MIGDevices(ctx, gpu)
	if err != nil {
		return nil, err //nolint:wrapcheck // as above
	}
	out := make([]exec.Instance, len(list))
	for i, in := range list {
		out[i] = exec.Instance{Place: mig.Place{Profile: in.Profile, Start: in.Start}, GI: in.GI}
		for _, c := range in.Computes {
			id, err := uuid(devices, gpu, in.GI, c.CI)
			if err != nil {
				return nil, err
			}
			out[i].CIs = append(out[i].CIs, exec.Compute{CI: c.CI, Whole: c.Whole, UUID: id})
		}
	}
	return out, nil
}

// uuid finds a compute instance's device. That it has none is not to be taken for another device: the two lists are of
// two moments.
func uuid(devices []nvml.MIGDevice, gpu sharing.GPUID, gi, ci int) (string, error) {
	i := slices.IndexFunc(devices, func(d nvml.MIGDevice) bool { return d.GI == gi && d.CI == ci && d.UUID != "" })
	if i < 0 {
		return "", fmt.Errorf("the UUID of MIG device %d/%d of gpu %q is not available: %w", gi, ci, string(gpu),
			sharing.ErrUnavailable)
	}
	return devices[i].UUID, nil
}

// CreateGI makes a GPU instance.
func (d *Driver) CreateGI(ctx context.Context, gpu sharing.GPUID, at mig.Place) (int, error) {
	t, err := d.Table(ctx, gpu)
	if err != nil {
		return 0, err
	}
	p, ok := t.Profile(at.Profile)
	if !ok {
		return 0, fmt.Errorf("gpu %q has no MIG profile %d: %w", string(gpu), at.Profile, sharing.ErrInvalid)
	}
	return d.lib.CreateGI(ctx, gpu, at.Profile, at.Start, p.Size) //nolint:wrapcheck // as above
}

// DestroyGI ends a GPU instance.
func (d *Driver) DestroyGI(ctx context.Context, gpu sharing.GPUID, gi int) error {
	return d.lib.DestroyGI(ctx, gpu, gi) //nolint:wrapcheck // as above
}

// CreateCI makes the compute instance over all of a GPU instance. If its UUID stays unknown, it returns
// sharing.ErrUnavailable; a later read finds the instance.
func (d *Driver) CreateCI(ctx context.Context, gpu sharing.GPUID, gi int) (exec.Compute, error) {
	ci, err := d.lib.CreateCI(ctx, gpu, gi)
	if err != nil {
		return exec.Compute{}, err //nolint:wrapcheck // as above
	}
	devices, err := d.lib.MIGDevices(ctx, gpu)
	if err != nil {
		return exec.Compute{}, fmt.Errorf("%w (%w)", err, sharing.ErrUnavailable)
	}
	id, err := uuid(devices, gpu, gi, ci)
	return exec.Compute{CI: ci, Whole: true, UUID: id}, err
}

// DestroyCI ends a compute instance.
func (d *Driver) DestroyCI(ctx context.Context, gpu sharing.GPUID, gi, ci int) error {
	return d.lib.DestroyCI(ctx, gpu, gi, ci) //nolint:wrapcheck // as above
}

// Users says which processes hold instances: the driver's own list.
func (d *Driver) Users(ctx context.Context, gpu sharing.GPUID) ([]mig.User, error) {
	list, err := d.lib.MIGProcesses(ctx, gpu)
	if err != nil {
		return nil, err //nolint:wrapcheck // as above
	}
	holds := make([]mig.User, len(list))
	for i, p := range list {
		holds[i] = mig.User{GI: p.GI, Who: fmt.Sprintf("process %d", p.PID)} // -1 is mig.AnyInstance
	}
	return holds, nil
}
