// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/machine"
	"github.com/kerf-gpu/kerf/sim/wire"
)

// step sets the mode and says what must come of it.
type step struct {
	mode uint64
	want Activation
	now  MIGMode
}

func modes(t *testing.T, m *Model, steps ...step) {
	t.Helper()
	for i, s := range steps {
		got, err := m.SetMIGMode(0, Caller{PID: 7, Root: true}, s.mode)
		now, err2 := m.MIGMode(0)
		if err != nil || err2 != nil || got != s.want || now != s.now {
			t.Errorf("step %d, mode %d: %v %+v (%v, %v), want %v %+v", i, s.mode, got, now, err, err2, s.want, s.now)
		}
	}
}

// Before Hopper the call itself resets the GPU. No other process may have it open, let alone use memory on it, and no
// instance may exist. What another process does on another GPU does not matter.
func TestMIGModeResetsAmpere(t *testing.T) {
	m := testMachine(t, "a30x2", machine.Dmem)
	_, err := m.SetMIGMode(0, Caller{PID: 7}, 1)
	wantErr(t, err, wire.NoPermission)
	_, err = m.SetMIGMode(0, Caller{PID: 7, Root: true}, 2)
	wantErr(t, err, wire.Invalid)
	open(t, m, 1, 3, nil)
	p := open(t, m, 0, 1, nil)
	modes(t, m, step{1, ActivationInUse, MIGMode{false, true}}, step{0, ActivationDone, MIGMode{}})
	m.Close(p.id, 0)
	reads, err := m.Open(0, 2) // nvidia-smi, which holds nothing
	wantErr(t, err, nil)
	modes(t, m, step{1, ActivationInUse, MIGMode{false, true}})
	m.Close(reads, 0)
	_, err = m.Open(0, 7) // who asks
	wantErr(t, err, nil)
	wantErr(t, m.Apply([]int{0}, Change{XID: set(uint64(48))}, 0), nil)
	modes(t, m, step{1, ActivationDone, MIGMode{true, true}})
	if r, err := m.Recovery(0); r != RecoveryNone || err != nil {
		t.Errorf("after a reset: %v, %v", r, err)
	}
	_, err = m.CreateGI(0, true, 14, AnyStart)
	wantErr(t, err, nil)
	modes(t, m, step{0, ActivationInUse, MIGMode{true, false}}, step{1, ActivationDone, MIGMode{true, true}})
	wantErr(t, m.DestroyGI(0, true, 1), nil)
	modes(t, m, step{0, ActivationDone, MIGMode{}})
	open(t, m, 0, 2, nil) // the whole GPU again
}

// A virtual machine cannot reset a GPU that is passed through to it: its mode is pending until its host resets it.
func TestMIGModeNeedsAResetWhenPassedThrough(t *testing.T) {
	m := testMachine(t, "a30x2", machine.Dmem)
	wantErr(t, m.Apply([]int{0}, Change{Passthrough: set(true)}, 0), nil)
	modes(t, m, step{1, ActivationReset, MIGMode{false, true}}, step{0, ActivationDone, MIGMode{}},
		step{1, ActivationReset, MIGMode{false, true}})
	_, err := m.CreateGI(0, true, 14, AnyStart)
	wantErr(t, err, wire.NotSupported)
	p := open(t, m, 0, 1, nil)
	wantErr(t, m.Apply([]int{0}, Change{Reset: true}, 0), sharing.ErrConflict)
	m.Close(p.id, 0)
	wantErr(t, m.Apply([]int{0}, Change{Reset: true}, 0), nil)
	_, err = m.CreateGI(0, true, 14, AnyStart)
	wantErr(t, err, nil)
	modes(t, m, step{1, ActivationDone, MIGMode{true, true}})
	// The mode outlives a reboot, the instance does not.
	wantErr(t, m.Apply([]int{0, 1}, Change{Reboot: true}, 0), nil)
	if list, err := m.Instances(0); err != nil || len(list) != 0 {
		t.Errorf("after a reboot: %+v, %v", list, err)
	}
	modes(t, m, step{0, ActivationReset, MIGMode{true, false}})
	wantErr(t, m.Apply([]int{0}, Change{Reboot: true}, 0), nil)
	open(t, m, 0, 2, nil) // the whole GPU again
	modes(t, m, step{1, ActivationInUse, MIGMode{false, true}})
	wantErr(t, m.Apply([]int{0}, Change{Passthrough: set(false), Reboot: true}, 0), nil)
	modes(t, m, step{1, ActivationDone, MIGMode{true, true}})
}

func TestMIGModeIsLiveOnHopper(t *testing.T) {
	m := testMachine(t, "h100x8", machine.Dmem)
	p := open(t, m, 0, 1, nil)
	modes(t, m, step{1, ActivationInUse, MIGMode{false, true}})
	m.Close(p.id, 0)
	modes(t, m, step{1, ActivationDone, MIGMode{true, true}})
	_, err := m.CreateGI(0, true, 9, 4)
	wantErr(t, err, nil)
	modes(t, m, step{0, ActivationInUse, MIGMode{true, false}})
	wantErr(t, m.DestroyGI(0, true, 1), nil)
	modes(t, m, step{0, ActivationDone, MIGMode{}}, step{1, ActivationDone, MIGMode{true, true}})
	_, err = m.CreateGI(0, true, 9, 4)
	wantErr(t, err, nil)
	wantErr(t, m.Apply([]int{0}, Change{Reset: true}, 0), nil)
	if list, err := m.Instances(0); err != nil || len(list) != 0 {
		t.Errorf("after a reset: %+v, %v", list, err)
	}
	wantErr(t, m.Apply([]int{0}, Change{Reboot: true}, 0), nil)
	if now, err := m.MIGMode(0); now != (MIGMode{}) || err != nil {
		t.Errorf("after a reboot: %+v, %v", now, err)
	}
	open(t, m, 0, 2, nil)
	wantErr(t, m.Apply([]int{0}, Change{Reboot: true, Reset: true}, 0), sharing.ErrInvalid)
}

func TestNoMIGMode(t *testing.T) {
	m := testMachine(t, "t4x4", machine.Dmem)
	_, err := m.SetMIGMode(0, Caller{PID: 7, Root: true}, 1)
	wantErr(t, err, wire.NotSupported)
	_, err = m.MIGMode(0)
	wantErr(t, err, wire.NotSupported)
}
