// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package caps

import (
	"context"
	"errors"

	"github.com/kerf-gpu/kerf/sharing"
)

// probeLimit is put on an empty group, where no size can hurt.
const probeLimit = sharing.GiB

// Probe tries the limits out on an empty group of their own: set, read back, clear. Facts are remembered
// until Forget; what could not be told is asked again.
func (d *Driver) Probe(ctx context.Context, gpu sharing.GPU) Support {
	if gpu.MIG {
		// Not remembered: MIG mode can be turned off.
		return Support{Answer: NotSupported, Reason: "the driver takes no memory limits on a GPU in MIG mode", Remedy: "grant MIG instances of this GPU, or turn MIG mode off"}
	}
	return d.answers.get(ctx, gpu.UUID, func(ctx context.Context) Support { return d.probe(ctx, gpu.UUID) })
}

// Forget drops what probes have found, for when the driver was reloaded.
func (d *Driver) Forget() { d.answers.forget() }

func (d *Driver) probe(ctx context.Context, gpu sharing.GPUID) (s Support) {
	if !d.door.HasMemoryLimits() {
		return Support{Answer: NotSupported, Reason: "the driver's library has no memory limit functions", Remedy: "install NVIDIA driver r615 or newer"}
	}
	dir, remove, err := d.cgroups.Scratch()
	switch {
	case errors.Is(err, sharing.ErrUnsupported):
		return Support{Answer: NotSupported, Reason: "no cgroup v2 hierarchy is mounted", Remedy: "boot with the unified hierarchy (systemd.unified_cgroup_hierarchy=1) or mount cgroup2"}
	case err != nil:
		return couldNotTell("a cgroup to try it on cannot be made", err)
	}
	defer func() {
		if err := remove(); err != nil && s.Answer == Supported {
			s = couldNotTell("the cgroup it was tried on cannot be removed", err)
		}
	}()
	err = d.Apply(ctx, dir, []Limit{{GPU: gpu, Memory: probeLimit}})
	if errors.Is(err, sharing.ErrUnsupported) && !errors.Is(err, sharing.ErrUnavailable) {
		return Support{Answer: NotSupported, Reason: "the driver refuses it on this GPU: " + err.Error(), Remedy: "see the driver's release notes for memory limits"}
	}
	if err != nil {
		return couldNotTell("setting a limit failed", err)
	}
	if err := d.Clear(ctx, dir, []sharing.GPUID{gpu}); err != nil {
		return couldNotTell("clearing a limit failed", err)
	}
	return Support{Answer: Supported}
}

func couldNotTell(what string, err error) Support {
	s := Support{Answer: CouldNotTell, Reason: what + ": " + err.Error(), Remedy: "look at the reason and try again"}
	switch {
	case errors.Is(err, sharing.ErrDenied):
		s.Remedy = "run as root"
	case errors.Is(err, sharing.ErrLost):
		s.Remedy = "reset the GPU or reboot"
	}
	return s
}
