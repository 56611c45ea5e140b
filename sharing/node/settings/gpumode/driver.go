// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package gpumode

import (
	"context"

	"github.com/kerf-gpu/kerf/internal/nvidiasmi"
	"github.com/kerf-gpu/kerf/internal/nvml"
	"github.com/kerf-gpu/kerf/sharing"
)

// File is the name of the file in the agent's folder that has what GPUs had before.
const File = "gpu-modes.json"

// NVIDIA is the driver: NVML, and nvidia-smi for the time slice, which NVML lacks.
type NVIDIA struct {
	Library *nvml.Library
	Program *nvidiasmi.Program
}

var _ Driver = NVIDIA{}

// ComputeMode implements Driver.
func (d NVIDIA) ComputeMode(ctx context.Context, gpu sharing.GPUID) (sharing.ComputeMode, error) {
	return d.Library.ComputeMode(ctx, gpu)
}

// SetComputeMode implements Driver.
func (d NVIDIA) SetComputeMode(ctx context.Context, gpu sharing.GPUID, mode sharing.ComputeMode) error {
	return d.Library.SetComputeMode(ctx, gpu, mode)
}

// TimeSlice implements Driver.
func (d NVIDIA) TimeSlice(ctx context.Context, gpu sharing.GPUID) (sharing.TimeSlice, error) {
	return d.Program.TimeSlice(ctx, gpu)
}

// SetTimeSlice implements Driver.
func (d NVIDIA) SetTimeSlice(ctx context.Context, gpu sharing.GPUID, slice sharing.TimeSlice) error {
	return d.Program.SetTimeSlice(ctx, gpu, slice)
}

// PowerLimit implements Driver.
func (d NVIDIA) PowerLimit(ctx context.Context, gpu sharing.GPUID) (milliwatts uint32, err error) {
	limit, err := d.Library.PowerLimit(ctx, gpu)
	return limit.Now, err
}

// SetPowerLimit implements Driver.
func (d NVIDIA) SetPowerLimit(ctx context.Context, gpu sharing.GPUID, milliwatts uint32) error {
	return d.Library.SetPowerLimit(ctx, gpu, milliwatts)
}
