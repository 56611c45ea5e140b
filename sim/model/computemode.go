// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import "github.com/kerf-gpu/kerf/sim/wire"

// ComputeMode says who may have contexts on a GPU: NVML_COMPUTEMODE_*. A change leaves those that there are.
type ComputeMode uint64

// The modes that drivers still have.
const (
	ComputeDefault          ComputeMode = 0
	ComputeProhibited       ComputeMode = 2
	ComputeExclusiveProcess ComputeMode = 3
)

// ComputeMode returns a GPU's mode. Errors: Invalid, Lost.
func (m *Model) ComputeMode(index int) (ComputeMode, error) {
	g, err := m.gpu(index)
	if err != nil {
		return 0, err
	}
	return g.mode, nil
}

// SetComputeMode changes a GPU's mode; admin says whether the caller has CAP_SYS_ADMIN. Errors: Invalid (no such GPU or
// mode), NoPermission, Lost.
func (m *Model) SetComputeMode(index int, admin bool, mode ComputeMode) error {
	g, err := m.gpu(index)
	switch {
	case err != nil:
		return err
	case mode != ComputeDefault && mode != ComputeProhibited && mode != ComputeExclusiveProcess:
		return wire.Invalid
	case !admin:
		return wire.NoPermission
	}
	g.mode = mode
	return nil
}

// admits tells whether a client may have one more context, else InUse. An MPS server and its clients count as one.
func (m *Model) admits(c *client) error {
	switch c.gpu.mode {
	case ComputeDefault:
	case ComputeProhibited:
		return wire.InUse
	case ComputeExclusiveProcess:
		for _, other := range m.clients {
			if other.gpu == c.gpu && other.pid != c.pid && other.holder() != c.holder() && len(other.contexts) > 0 {
				return wire.InUse
			}
		}
	}
	return nil
}
