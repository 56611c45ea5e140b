// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"

	"github.com/kerf-gpu/kerf/sim/wire"
)

// PowerLimit is to how much power a GPU is held, in milliwatts.
type PowerLimit struct {
	// Now is the enforced limit, and Default the one that the GPU begins with.
	Now, Default uint64
	// Min and Max bound what can be set.
	Min, Max uint64
}

// PowerLimit returns a GPU's limit. Errors: Invalid, Lost, NotSupported where the model does not say one.
func (m *Model) PowerLimit(index int) (PowerLimit, error) {
	g, err := m.gpu(index)
	if err != nil {
		return PowerLimit{}, err
	}
	own := g.hw.Model.PowerLimit
	if own == 0 {
		return PowerLimit{}, wire.NotSupported
	}
	return PowerLimit{Now: g.powerLimit(), Default: own, Min: own / 4, Max: own}, nil
}

// SetPowerLimit limits a GPU to so many milliwatts until the driver is loaded again; admin says whether the caller has
// CAP_SYS_ADMIN. Errors: those of PowerLimit, Invalid for a limit that is out of bounds, NoPermission.
func (m *Model) SetPowerLimit(index int, admin bool, milliwatts uint64) error {
	p, err := m.PowerLimit(index)
	switch {
	case err != nil:
		return err
	case milliwatts < p.Min || milliwatts > p.Max:
		return wire.Invalid
	case !admin:
		return wire.NoPermission
	}
	m.gpus[index].power = milliwatts
	return nil
}

func (g *gpu) powerLimit() uint64 { return cmp.Or(g.power, g.hw.Model.PowerLimit) }
