// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"slices"
	"testing"

	"github.com/kerf-gpu/kerf/deviceplugin"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/status"
)

// A node publishes the GPUs that have the DRA front end, by what their pool offers and in the order of their use.
func TestDevicesOf(t *testing.T) {
	gpu := func(id string, s config.GPUSettings, grants int) status.BookedGPU {
		return status.BookedGPU{View: ledger.View{GPU: sharing.GPU{UUID: sharing.GPUID(id), Memory: 80 * sharing.GiB,
			Health: sharing.HealthOK}, Grants: grants, FreeMemory: 20 * sharing.GiB},
			Levels: []sharing.Level{sharing.LevelExclusive, sharing.LevelDriver}, Settings: s}
	}
	dra := config.GPUSettings{FrontEnd: sharing.FrontEndDRA}
	whole, excluded := dra, dra
	whole.Mode, excluded.Excluded = config.ModeWhole, true
	b := status.LedgerState{DriverVersion: "615.10", GPUs: []status.BookedGPU{gpu("GPU-a", dra, 0),
		gpu("GPU-b", dra, 2), gpu("GPU-c", config.GPUSettings{}, 0), gpu("GPU-d", whole, 0), gpu("GPU-e", excluded, 0)}}
	var names []string
	for _, d := range devicesOf(b, config.Pool{Mode: config.ModeShared, FrontEnd: sharing.FrontEndDRA}) {
		names = append(names, d.Name)
	}
	if want := []string{"gpu-b-share", "gpu-a-share", "gpu-d"}; !slices.Equal(names, want) {
		t.Errorf("published %q, want %q", names, want)
	}
}

// The device plugin advertises nothing of a GPU that pods get by ResourceClaim, also if it is in MIG mode.
func TestOfDevicePlugin(t *testing.T) {
	a, b := sharing.GPURef{UUID: "a"}, sharing.GPURef{UUID: "b"}
	units := []deviceplugin.Unit{{GPU: a, GiB: 79}, {GPU: b, GiB: 79, InMIGMode: true,
		MIG: []deviceplugin.Instances{{Resource: "kerf.dev/mig-1g.10gb", Count: 7}}}}
	got, some := ofDevicePlugin(units, func(gpu sharing.GPUID) bool { return gpu == "b" })
	if !some || got[0].NoShare || !got[1].NoShare || !got[1].NoWhole || got[1].InMIGMode || len(got[1].MIG) != 0 ||
		got[1].GiB != 79 || len(units[1].MIG) != 1 {
		t.Errorf("some %t: %+v", some, got)
	}
	if _, some := ofDevicePlugin(units, func(sharing.GPUID) bool { return true }); some {
		t.Error("it advertises something")
	}
}
