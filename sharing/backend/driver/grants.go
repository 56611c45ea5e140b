// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"fmt"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend"
)

// Limits are the driver's limits of the grants' cgroups.
type Limits interface {
	// Renew limits a cgroup whose processes may run, and reads the limits back. On error all that is enforced stays.
	Renew(ctx context.Context, dir string, own []sharing.Share, others []sharing.GPURef) error
	// Read is the limit and its use; sharing.ErrNotFound if there is none.
	Read(ctx context.Context, dir string, gpu sharing.GPURef) (limit, used sharing.Bytes, err error)
}

// Backend enforces caps with the limits of the grants' cgroups. These are set when a grant gets its cgroup, and end
// with it.
type Backend struct {
	backend.None
	Limits Limits
	// Can reports whether a GPU takes limits now.
	Can func(gpu sharing.GPURef) bool
}

// Resize implements backend.Backend.
func (b Backend) Resize(ctx context.Context, g backend.Grant, caps sharing.Placement) error {
	for _, f := range caps {
		if f.Whole || !b.Can(f.GPU) {
			return fmt.Errorf("one of its GPUs is lost or does not answer: %w", sharing.ErrUnavailable)
		}
	}
	return b.Limits.Renew(ctx, g.Cgroup, caps, nil)
}

// Read implements backend.Backend.
func (b Backend) Read(ctx context.Context, g backend.Grant, gpu sharing.GPURef) (backend.Reading, error) {
	limit, used, err := b.Limits.Read(ctx, g.Cgroup, gpu)
	return backend.Reading{Cap: limit, Used: used}, err
}
