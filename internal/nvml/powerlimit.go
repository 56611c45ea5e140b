// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"errors"
	"fmt"

	"github.com/kerf-gpu/kerf/sharing"
)

// PowerLimit is to how much power a GPU is held, in milliwatts.
type PowerLimit struct {
	// Now is the limit in force.
	Now uint32
	// Least and Most bound what can be set; both are 0 where the driver does not tell.
	Least, Most uint32
}

// PowerLimit returns the GPU's limit. It is sharing.ErrUnsupported where the driver does not tell.
func (s Settings) PowerLimit(ctx context.Context, id sharing.GPUID) (PowerLimit, error) {
	return onGPU(ctx, s.driver, "read power limit", id, device.powerLimit)
}

// SetPowerLimit holds the GPU to so many milliwatts, until the driver is loaded anew. It needs root. A limit that is out of
// the GPU's bounds is sharing.ErrInvalid, and the error names them. When ctx ends while the driver hangs, the limit may still
// be set later.
func (s Settings) SetPowerLimit(ctx context.Context, id sharing.GPUID, milliwatts uint32) error {
	_, err := change(ctx, s.driver, "set power limit", id, func(d device) (struct{}, error) { return struct{}{}, d.setPowerLimit(milliwatts) })
	if errors.Is(err, sharing.ErrInvalid) {
		if p, bounds := s.PowerLimit(ctx, id); bounds == nil && p.Most > 0 {
			return fmt.Errorf("%w; the GPU takes %d to %d watts", err, (p.Least+999)/1000, p.Most/1000)
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
			p.Least, p.Most = least, most
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
