// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/kerf-gpu/kerf/sharing"
)

// Settings reads and changes settings of GPUs that concern all who use them.
type Settings struct{ driver *driver }

// ComputeMode returns which processes may have a context on the GPU. It is sharing.ErrUnsupported where the driver
// does not tell, or has a mode that only old drivers know.
func (s Settings) ComputeMode(ctx context.Context, id sharing.GPUID) (sharing.ComputeMode, error) {
	return onGPU(ctx, s.driver, "read compute mode", id, device.computeMode)
}

// SetComputeMode changes it; contexts that there are stay. It needs root. When ctx ends while the driver hangs, the
// mode may still be set later.
func (s Settings) SetComputeMode(ctx context.Context, id sharing.GPUID, mode sharing.ComputeMode) error {
	_, err := change(ctx, s.driver, "set compute mode", id, func(d device) (struct{}, error) {
		return struct{}{},
			d.setComputeMode(mode)
	})
	return err
}

func (g goDevice) computeMode() (sharing.ComputeMode, error) {
	const name = "nvmlDeviceGetComputeMode"
	if err := g.d.need(name); err != nil {
		return sharing.ComputeModeAsIs, err
	}
	got, r := g.dev.GetComputeMode()
	if err := check(name, r); err != nil {
		return sharing.ComputeModeAsIs, err
	}
	switch got {
	case nvml.COMPUTEMODE_DEFAULT:
		return sharing.ComputeModeDefault, nil
	case nvml.COMPUTEMODE_EXCLUSIVE_PROCESS:
		return sharing.ComputeModeExclusiveProcess, nil
	case nvml.COMPUTEMODE_PROHIBITED:
		return sharing.ComputeModeProhibited, nil
	case nvml.COMPUTEMODE_EXCLUSIVE_THREAD, nvml.COMPUTEMODE_COUNT:
	}
	return sharing.ComputeModeAsIs, fmt.Errorf("the driver reports compute mode %d: %w", got, sharing.ErrUnsupported)
}

func (g goDevice) setComputeMode(mode sharing.ComputeMode) error {
	const name = "nvmlDeviceSetComputeMode"
	if err := g.d.need(name); err != nil {
		return err
	}
	modes := map[sharing.ComputeMode]nvml.ComputeMode{
		sharing.ComputeModeDefault:          nvml.COMPUTEMODE_DEFAULT,
		sharing.ComputeModeExclusiveProcess: nvml.COMPUTEMODE_EXCLUSIVE_PROCESS,
		sharing.ComputeModeProhibited:       nvml.COMPUTEMODE_PROHIBITED,
	}
	m, ok := modes[mode]
	if !ok {
		return fmt.Errorf("compute mode %d: %w", mode, sharing.ErrInvalid)
	}
	return check(name, g.dev.SetComputeMode(m))
}

// PowerLimit is to how much power a GPU is held, in milliwatts.
type PowerLimit struct {
	// Now is the enforced limit.
	Now uint32
	// Min and Max bound what can be set; both are 0 where the driver does not tell.
	Min, Max uint32
}

// PowerLimit returns the GPU's limit. It is sharing.ErrUnsupported where the driver does not tell.
func (s Settings) PowerLimit(ctx context.Context, id sharing.GPUID) (PowerLimit, error) {
	return onGPU(ctx, s.driver, "read power limit", id, device.powerLimit)
}

// SetPowerLimit limits the GPU to so many milliwatts, until the driver is loaded again. It needs root. A limit out of
// the GPU's bounds is sharing.ErrInvalid, and the error names them. When ctx ends while the driver hangs, the limit
// may still be set later.
func (s Settings) SetPowerLimit(ctx context.Context, id sharing.GPUID, milliwatts uint32) error {
	_, err := change(ctx, s.driver, "set power limit", id, func(d device) (struct{}, error) {
		return struct{}{},
			d.setPowerLimit(milliwatts)
	})
	if errors.Is(err, sharing.ErrInvalid) {
		if p, bounds := s.PowerLimit(ctx, id); bounds == nil && p.Max > 0 {
			return fmt.Errorf("%w; the GPU takes %d to %d watts", err, (p.Min+999)/1000, p.Max/1000)
		}
	}
	return err
}

func (g goDevice) powerLimit() (PowerLimit, error) {
	const name = "nvmlDeviceGetPowerManagementLimit"
	if err := g.d.need(name); err != nil {
		return PowerLimit{}, err
	}
	now, r := g.dev.GetPowerManagementLimit()
	if err := check(name, r); err != nil {
		return PowerLimit{}, err
	}
	p := PowerLimit{Now: now}
	const bounds = "nvmlDeviceGetPowerManagementLimitConstraints"
	if g.d.need(bounds) == nil {
		if least, most, r := g.dev.GetPowerManagementLimitConstraints(); check(bounds, r) == nil {
			p.Min, p.Max = least, most
		}
	}
	return p, nil
}

func (g goDevice) setPowerLimit(milliwatts uint32) error {
	const name = "nvmlDeviceSetPowerManagementLimit"
	if err := g.d.need(name); err != nil {
		return err
	}
	return check(name, g.dev.SetPowerManagementLimit(milliwatts))
}
