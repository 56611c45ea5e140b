// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"testing"

	"github.com/kerf-gpu/kerf/sim/machine"
	"github.com/kerf-gpu/kerf/sim/wire"
)

func TestPowerLimit(t *testing.T) {
	m := testMachine(t, "t4x4", machine.Dmem)
	set := func(root bool, milliwatts uint64, want error) {
		t.Helper()
		wantErr(t, m.SetPowerLimit(0, root, milliwatts), want)
	}
	shows := func(index int, want uint64) {
		t.Helper()
		p, err := m.PowerLimit(index)
		sensors, errSensors := m.Telemetry(index, 0)
		if err != nil || errSensors != nil || p != (PowerLimit{Now: want, Default: 70000, Min: 17500, Max: 70000}) ||
			sensors.PowerLimit != want || sensors.Power > want {
			t.Errorf("%+v and %+v, %v, %v; want %d", p, sensors, err, errSensors, want)
		}
	}
	shows(0, 70000)
	set(false, 50000, wire.NoPermission)
	set(true, 17499, wire.Invalid)
	set(true, 70001, wire.Invalid)
	shows(0, 70000)
	set(true, 50000, nil)
	shows(0, 50000)
	shows(1, 70000)
	if _, err := m.PowerLimit(99); err == nil {
		t.Error("a GPU that there is not has a limit")
	}
}
