// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/wire"
)

// MIGMode says whether a GPU is in MIG mode, and whether it will be after its next reset.
type MIGMode struct{ Current, Pending bool }

// Activation says what became of a mode that was set.
type Activation uint64

// The outcomes. In the last two the mode is pending.
const (
	ActivationDone  Activation = 0
	ActivationInUse Activation = 1 // the GPU is in use, or has instances: set the mode again once it is idle
	ActivationReset Activation = 2 // the GPU takes the mode with its next reset, which cannot be had from here
)

// liveMIG is true for GPUs that change MIG mode without a reset. They are also those that forget it at a reboot.
func (g *gpu) liveMIG() bool { return g.hw.Model.CCMajor >= 9 }

// MIGMode returns a GPU's mode. Errors: Invalid, NotSupported (a GPU that cannot do MIG), Lost.
func (m *Model) MIGMode(index int) (MIGMode, error) {
	g, err := m.gpu(index)
	switch {
	case err != nil:
		return MIGMode{}, err
	case g.hw.Model.MaxMIG == 0:
		return MIGMode{}, wire.NotSupported
	}
	return MIGMode{Current: g.hw.MIG, Pending: g.pendingMIG}, nil
}

// Caller is the process that asks for what only root may have.
type Caller struct {
	PID  int
	Root bool
}

// SetMIGMode enables (1) or disables (0) MIG mode. A GPU changes at once when it has no instance and no process uses
// it. Before Hopper the call resets the GPU: no other process may even have it open, and a virtual machine cannot do
// it. Errors: Invalid (no such GPU or mode), NotSupported (a GPU that cannot do MIG), NoPermission, Lost.
func (m *Model) SetMIGMode(index int, by Caller, mode uint64) (Activation, error) {
	g, err := m.gpu(index)
	switch {
	case err != nil:
		return 0, err
	case g.hw.Model.MaxMIG == 0:
		return 0, wire.NotSupported
	case mode > 1:
		return 0, wire.Invalid
	case !by.Root:
		return 0, wire.NoPermission
	}
	g.pendingMIG = mode == 1
	switch {
	case g.pendingMIG == g.hw.MIG:
		return ActivationDone, nil
	case m.held(g) || len(g.hw.Instances) > 0:
		return ActivationInUse, nil
	case !g.liveMIG() && g.passed:
		return ActivationReset, nil
	case !g.liveMIG() && m.openBut(g, by.PID):
		return ActivationInUse, nil
	}
	if !g.liveMIG() {
		g.recovery, g.remap.Pending = RecoveryNone, false // it was reset
	}
	g.turn()
	return ActivationDone, nil
}

// openBut reports whether another process has a GPU open.
func (m *Model) openBut(g *gpu, pid int) bool {
	for _, c := range m.clients {
		if c.gpu == g && c.pid != pid {
			return true
		}
	}
	return false
}

// held reports whether a process holds something on a GPU.
func (m *Model) held(g *gpu) bool {
	for _, c := range m.clients {
		if c.gpu == g && c.objects() > 0 {
			return true
		}
	}
	return false
}

// turn gives a GPU on which nothing is held the mode that is pending. Instances are gone with it, also where the mode
// stays.
func (g *gpu) turn() {
	changed := g.hw.MIG != g.pendingMIG
	g.hw.MIG, g.hw.Instances, g.instances = g.pendingMIG, nil, nil
	switch {
	case g.hw.MIG:
		g.capacity, g.used = nil, nil
	case changed:
		g.capacity = []sharing.Bytes{g.hw.Model.Memory.SubFloor(g.hw.Model.Reserved)}
		g.used = make([]sharing.Bytes, 1)
	}
	if changed {
		clear(g.limits)
	}
}

// reboot does to a GPU what a restart of the node does. All memory in use and all settings of the driver are gone. Only
// GPUs before Hopper keep MIG mode. Clients stay open, like those of a lost GPU.
func (m *Model) reboot(g *gpu, now time.Duration) {
	m.lose(g, now)
	g.lost, g.recovery = false, RecoveryNone
	g.pendingMIG = g.pendingMIG && !g.liveMIG()
	g.turn()
	clear(g.limits)
	g.mode, g.slice = ComputeDefault, 0
}
