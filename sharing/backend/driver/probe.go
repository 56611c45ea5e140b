// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"sync"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend"
)

// probeLimit is put on an empty group, where every size is harmless.
const probeLimit = sharing.GiB

// Probe tries the limits out on an empty group made for it: set, read back, clear. Facts are remembered until Forget;
// an unknown answer is asked again.
func (d *Driver) Probe(ctx context.Context, gpu sharing.GPU) backend.Support {
	if gpu.MIG {
		// Not remembered: MIG mode can be turned off.
		return backend.Support{Answer: backend.NotSupported,
			Reason: "the driver takes no memory limits on a GPU in MIG mode",
			Remedy: "grant MIG instances of this GPU, or turn MIG mode off"}
	}
	return d.answers.get(ctx, gpu.UUID, func(ctx context.Context) backend.Support { return d.probe(ctx, gpu.UUID) })
}

// Forget drops what probes have found, for when the driver was reloaded.
func (d *Driver) Forget() { d.answers.forget() }

func (d *Driver) probe(ctx context.Context, gpu sharing.GPUID) (s backend.Support) {
	if !d.nvml.HasMemoryLimits() {
		return backend.Support{Answer: backend.NotSupported,
			Reason: "the driver's library has no memory limit functions", Remedy: "install NVIDIA driver r615 or newer"}
	}
	dir, remove, err := d.cgroups.Scratch()
	switch {
	case errors.Is(err, sharing.ErrUnsupported):
		return backend.Support{Answer: backend.NotSupported, Reason: "no cgroup v2 hierarchy is mounted",
			Remedy: "boot with the unified hierarchy (systemd.unified_cgroup_hierarchy=1) or mount cgroup2"}
	case err != nil:
		return backend.Unknown("a cgroup to try it on cannot be made", err)
	}
	defer func() {
		if err := remove(); err != nil && s.Answer == backend.Supported {
			s = backend.Unknown("the cgroup it was tried on cannot be removed", err)
		}
	}()
	ref := sharing.GPURef{UUID: gpu}
	err = d.Apply(ctx, dir, []sharing.Share{{GPU: ref, Memory: probeLimit}}, nil)
	if errors.Is(err, sharing.ErrUnsupported) && !errors.Is(err, sharing.ErrUnavailable) {
		return backend.Support{Answer: backend.NotSupported, Reason: "the driver refuses it on this GPU: " +
			err.Error(), Remedy: "see the driver's release notes for memory limits"}
	}
	if err != nil {
		return backend.Unknown("setting a limit failed", err)
	}
	if err := d.Clear(ctx, dir, []sharing.GPURef{ref}); err != nil {
		return backend.Unknown("clearing a limit failed", err)
	}
	return backend.Support{Answer: backend.Supported}
}

// probes remembers answers that are facts, per GPU.
type probes struct {
	mu    sync.Mutex
	known map[sharing.GPUID]backend.Support
}

// get returns the remembered answer, or asks and remembers it unless it is unknown. Two callers may ask at once; both
// answers are good.
func (p *probes) get(ctx context.Context, gpu sharing.GPUID,
	ask func(context.Context) backend.Support) backend.Support {
	p.mu.Lock()
	s, ok := p.known[gpu]
	p.mu.Unlock()
	if ok {
		return s
	}
	s = ask(ctx)
	if s.Answer == backend.NoAnswer {
		return s
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil {
		p.known = map[sharing.GPUID]backend.Support{}
	}
	p.known[gpu] = s
	return s
}

// forget drops all answers.
func (p *probes) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.known)
}
