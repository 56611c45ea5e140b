// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"fmt"
	"math"

	"github.com/kerf-gpu/kerf/sharing"
)

// NoLimit is the hard limit that means "no limit".
const NoLimit sharing.Bytes = math.MaxUint64

// Limit is a cgroup's memory limit on one GPU.
type Limit struct {
	Soft, Hard, Used sharing.Bytes
}

// Limits sets and reads the driver's memory limits of cgroups. Read-only libraries allow them.
type Limits struct{ driver *driver }

// HasMemoryLimits reports whether the library has the functions of the driver's memory limits (driver r615
// and newer). Whether the kernel side works is another question; see package caps.
func (l Limits) HasMemoryLimits() bool { return l.driver.door.hasLimits() }

// SetMemoryLimit sets the driver's limits on what the processes of cgroup dir (an absolute cgroup v2
// directory) hold of the GPU: soft is kept for them, past hard their allocations fail. NoLimit as hard takes
// the limit away. It needs root. When ctx ends while the driver hangs, the limit may still be set later.
func (l Limits) SetMemoryLimit(ctx context.Context, id sharing.GPUID, dir string, soft, hard sharing.Bytes) error {
	_, err := onGPU(ctx, l.driver, "set memory limit", id, func(d device) (struct{}, error) {
		return struct{}{}, d.setLimit(dir, soft, hard)
	})
	return err
}

// PutMemoryLimit is SetMemoryLimit, and then MemoryLimit in the same turn: no other call comes between the two, and a
// caller with many GPUs waits once for each. When only the reading fails the error says so, and the limit may be in force.
func (l Limits) PutMemoryLimit(ctx context.Context, id sharing.GPUID, dir string, soft, hard sharing.Bytes) (Limit, error) {
	return onGPU(ctx, l.driver, "put memory limit", id, func(d device) (Limit, error) {
		if err := d.setLimit(dir, soft, hard); err != nil {
			return Limit{}, err
		}
		got, err := d.limit(dir)
		if err != nil {
			return Limit{}, fmt.Errorf("read back: %w", err)
		}
		return got, nil
	})
}

// MemoryLimit reads what SetMemoryLimit has set: the limit on dir or, with the driver's own accounting instead of the kernel's
// dmem controller, the nearest one above it. Where none is, a driver answers sharing.ErrNotFound, sharing.ErrUnsupported, or a
// soft limit of 0 and a hard one of NoLimit.
func (l Limits) MemoryLimit(ctx context.Context, id sharing.GPUID, dir string) (Limit, error) {
	return onGPU(ctx, l.driver, "read memory limit", id, func(d device) (Limit, error) { return d.limit(dir) })
}
