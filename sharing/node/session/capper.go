// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"fmt"

	"github.com/kerf-gpu/kerf/sharing/backend/driver"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend"
)

// capper turns the driver backend into what the runtime asks for.
type capper struct{ driver *driver.Driver }

// Least implements gpudriver.Capper.
func (capper) Least() sharing.Bytes { return backend.LeastLimit }

// Apply implements gpudriver.Capper.
func (c capper) Apply(ctx context.Context, dir string, own []sharing.Share, others []sharing.GPURef) error {
	limits := limitsOf(own, others)
	if len(limits) == 0 {
		return nil
	}
	return c.driver.Apply(ctx, dir, limits)
}

// Renew implements gpudriver.Capper.
func (c capper) Renew(ctx context.Context, dir string, own []sharing.Share, others []sharing.GPURef) error {
	limits := limitsOf(own, others)
	if len(limits) == 0 {
		return nil
	}
	return c.driver.Renew(ctx, dir, limits)
}

// limitsOf are the limits of a grant's shares, and the least one on all other GPUs. A whole GPU has none.
func limitsOf(own []sharing.Share, others []sharing.GPURef) []backend.Limit {
	var limits []backend.Limit
	for _, f := range own {
		if !f.Whole {
			limits = append(limits, backend.Limit{GPU: f.GPU, Memory: f.Memory})
		}
	}
	for _, id := range others {
		limits = append(limits, backend.Limit{GPU: id, Memory: backend.LeastLimit})
	}
	return limits
}

// Read implements gpudriver.Capper.
func (c capper) Read(ctx context.Context, dir string, gpu sharing.GPURef) (limit, used sharing.Bytes, err error) {
	r, err := c.driver.Read(ctx, dir, gpu.UUID)
	if err == nil && r.Cap == backend.NoCap {
		return 0, 0, fmt.Errorf("cgroup %q has no limit on GPU %q: %w", dir, gpu, sharing.ErrNotFound)
	}
	return r.Cap, r.Used, err
}

// Clear implements gpudriver.Capper.
func (c capper) Clear(ctx context.Context, dir string, gpus []sharing.GPURef) error {
	ids := make([]sharing.GPUID, len(gpus))
	for i, gpu := range gpus {
		ids[i] = gpu.UUID
	}
	return c.driver.Clear(ctx, dir, ids)
}
