// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"fmt"
	"math"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

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
func (l Limits) HasMemoryLimits() bool { return l.driver.adapter.hasLimits() }

// SetMemoryLimit sets the driver's limits on the GPU memory of the processes of cgroup dir, an absolute cgroup v2
// directory. The driver keeps soft for them, and rejects allocations above hard. NoLimit as hard removes the limit.
// It needs root. If ctx ends while the driver hangs, the driver may still set the limit later.
func (l Limits) SetMemoryLimit(ctx context.Context, id sharing.GPUID, dir string, soft, hard sharing.Bytes) error {
	_, err := onGPU(ctx, l.driver, "set memory limit", id, func(d device) (struct{}, error) {
		return struct{}{}, d.setLimit(dir, soft, hard)
	})
	return err
}

// PutMemoryLimit is SetMemoryLimit and then MemoryLimit, without another call in between. A caller with many GPUs
// waits once for each. If only the reading fails, the error says so, and the limit may be set.
func (l Limits) PutMemoryLimit(ctx context.Context, id sharing.GPUID, dir string, soft, hard sharing.Bytes) (Limit,
	error) {
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

// MemoryLimit reads what SetMemoryLimit has set on dir. A driver without the kernel's dmem controller returns the
// nearest limit above it. Without a limit, a driver answers sharing.ErrNotFound, sharing.ErrUnsupported, or a soft
// limit of 0 and a hard one of NoLimit.
func (l Limits) MemoryLimit(ctx context.Context, id sharing.GPUID, dir string) (Limit, error) {
	return onGPU(ctx, l.driver, "read memory limit", id, func(d device) (Limit, error) { return d.limit(dir) })
}

// The functions of the memory limits, which drivers have from r615 on.
const (
	setLimitsFunc = "nvmlDeviceSetMemoryLimits_v1"
	getLimitsFunc = "nvmlDeviceGetMemoryLimits_v1"
)

func (d *goAdapter) hasLimits() bool {
	return d.need(setLimitsFunc) == nil && d.need(getLimitsFunc) == nil
}

func (g goDevice) setLimit(dir string, soft, hard sharing.Bytes) error {
	if err := g.d.need(setLimitsFunc); err != nil {
		return err
	}
	return check(setLimitsFunc, g.dev.SetMemoryLimits_v1(dir, uint64(soft), uint64(hard)))
}

func (g goDevice) limit(dir string) (Limit, error) {
	if err := g.d.need(getLimitsFunc); err != nil {
		return Limit{}, err
	}
	got, r := g.dev.GetMemoryLimits_v1(dir)
	if err := check(getLimitsFunc, r); err != nil {
		return Limit{}, err
	}
	return Limit{Soft: sharing.Bytes(got.SoftLimit), Hard: sharing.Bytes(got.HardLimit),
		Used: sharing.Bytes(got.CurrentUsed)}, nil
}

// ofLimits is the meaning of a code of the memory limits' functions (nvml.h of NVML 13.4). ok is false if the code
// means the same as in other functions.
func ofLimits(function string, code nvml.Return) (text string, ok bool, word error) {
	set := function == setLimitsFunc
	switch {
	case !set && function != getLimitsFunc:
	case code == nvml.ERROR_OPERATING_SYSTEM:
		return "the cgroup cannot be opened", true, sharing.ErrUnavailable
	case set && code == nvml.ERROR_INVALID_ARGUMENT:
		return "a limit is above the GPU's memory, or the soft limit is above the hard limit", true, sharing.ErrInvalid
	case set && code == nvml.ERROR_NOT_SUPPORTED:
		return "this GPU or cgroup takes no memory limit", true, sharing.ErrUnsupported
	case !set && code == nvml.ERROR_NOT_FOUND:
		return "this cgroup has no memory limit on this GPU", true, sharing.ErrNotFound
	case !set && code == nvml.ERROR_NOT_SUPPORTED:
		// The kernel module of r615 (memacct.c) also says so of a cgroup without a limit.
		return "this GPU has no memory limits, or this cgroup has none on it", true, sharing.ErrUnsupported
	}
	return "", false, nil
}
