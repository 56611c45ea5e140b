// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"fmt"
	"math"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/kerf-gpu/kerf/sharing"
)

func (g goMIG) createGI(profile, start, size int) (int, error) {
	for _, n := range []int{profile, start, size} {
		if n < 0 || n > math.MaxInt32 {
			return 0, fmt.Errorf("profile %d at %d with %d units: %w", profile, start, size, sharing.ErrInvalid)
		}
	}
	h, err := ask(g.d, "nvmlDeviceCreateGpuInstanceWithPlacement", func() (nvml.GpuInstance, nvml.Return) {
		return g.dev.CreateGpuInstanceWithPlacement(&nvml.GpuInstanceProfileInfo{Id: uint32(profile)}, //nolint:gosec // checked
			&nvml.GpuInstancePlacement{Start: uint32(start), Size: uint32(size)}) //nolint:gosec // checked
	})
	if err != nil {
		return 0, err
	}
	info, err := ask(g.d, "nvmlGpuInstanceGetInfo", h.GetInfo)
	return int(info.Id), err
}

func (g goMIG) instance(gi int) (nvml.GpuInstance, error) {
	return ask(g.d, "nvmlDeviceGetGpuInstanceById",
		func() (nvml.GpuInstance, nvml.Return) { return g.dev.GetGpuInstanceById(gi) })
}

func (g goMIG) destroyGI(gi int) error {
	h, err := g.instance(gi)
	if err != nil {
		return err
	}
	return do(g.d, "nvmlGpuInstanceDestroy", h.Destroy)
}

// createCI takes the compute profile with the most slices: it is over all of the GPU instance.
func (g goMIG) createCI(gi int) (int, error) {
	h, err := g.instance(gi)
	if err != nil {
		return 0, err
	}
	var whole nvml.ComputeInstanceProfileInfo
	err = g.eachCompute(h, func(p nvml.ComputeInstanceProfileInfo) (bool, error) {
		if p.SliceCount > whole.SliceCount {
			whole = p
		}
		return false, nil
	})
	if err != nil {
		return 0, err
	}
	const name = "nvmlGpuInstanceCreateComputeInstance"
	if whole.SliceCount == 0 {
		return 0, check(name, nvml.ERROR_NOT_SUPPORTED)
	}
	c, err := ask(g.d, name, func() (nvml.ComputeInstance, nvml.Return) { return h.CreateComputeInstance(&whole) })
	if err != nil {
		return 0, err
	}
	info, err := ask(g.d, "nvmlComputeInstanceGetInfo_v2", c.GetInfo)
	return int(info.Id), err
}

func (g goMIG) destroyCI(gi, ci int) error {
	h, err := g.instance(gi)
	if err != nil {
		return err
	}
	c, err := ask(g.d, "nvmlGpuInstanceGetComputeInstanceById",
		func() (nvml.ComputeInstance, nvml.Return) { return h.GetComputeInstanceById(ci) })
	if err != nil {
		return err
	}
	return do(g.d, "nvmlComputeInstanceDestroy", c.Destroy)
}
