// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"testing"

	"github.com/kerf-gpu/kerf/sim/machine"
	"github.com/kerf-gpu/kerf/sim/wire"
)

func TestComputeMode(t *testing.T) {
	m := testMachine(t, "t4x4", machine.Dmem)
	p := open(t, m, 0, 1, nil)
	q, err := m.Open(0, 2)
	wantErr(t, err, nil)
	context := func(id ClientID, want error) {
		t.Helper()
		_, err := m.CreateContext(id, 0, nil)
		wantErr(t, err, want)
	}
	mode := func(root bool, mode ComputeMode, want error) {
		t.Helper()
		wantErr(t, m.SetComputeMode(0, root, mode), want)
	}
	mode(false, ComputeProhibited, wire.NoPermission)
	mode(true, 1, wire.Invalid)
	mode(true, 4, wire.Invalid)
	mode(true, ComputeExclusiveProcess, nil)
	context(p.id, nil) // its own process's second
	context(q, wire.InUse)
	m.Close(p.id, 0)
	context(q, nil)
	mode(true, ComputeProhibited, nil)
	context(q, wire.InUse)
	if got, err := m.ComputeMode(0); got != ComputeProhibited || err != nil {
		t.Errorf("mode %d, %v", got, err)
	}
	if got, err := m.ComputeMode(1); got != ComputeDefault || err != nil {
		t.Errorf("another GPU's mode %d, %v", got, err)
	}
	mode(true, ComputeDefault, nil)
	context(q, nil)
}
