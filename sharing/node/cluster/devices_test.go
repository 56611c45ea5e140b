// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"slices"
	"testing"

	"github.com/kerf-gpu/kerf/deviceplugin"
	"github.com/kerf-gpu/kerf/mig"
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

// MIG instances are published where demand may create them. GPUs in MIG mode come first for them, and last for shares.
// A GPU that stays in MIG mode gives nothing else, and one of a pool that shares GPUs gives no instances.
func TestDevicesOfMIG(t *testing.T) {
	geometry := []mig.Profile{{ID: 9, Name: "3g.40gb", Compute: 3, Memory: 40 * sharing.GiB, MaxInstances: 2, Size: 4,
		Starts: []int{0, 4}}, {ID: 0, Name: "7g.80gb", Compute: 7, Memory: 80 * sharing.GiB, MaxInstances: 1, Size: 8,
		Starts: []int{0}}}
	gpu := func(id string, on, switchable bool, m config.Mode, instances ...mig.Instance) status.BookedGPU {
		return status.BookedGPU{View: ledger.View{GPU: sharing.GPU{UUID: sharing.GPUID(id), Memory: 80 * sharing.GiB,
			MIG: on, Health: sharing.HealthOK}, FreeMemory: 80 * sharing.GiB},
			Settings: config.GPUSettings{FrontEnd: sharing.FrontEndDRA, Mode: m},
			MIG:      mig.State{On: on, ModeSwitchable: switchable, Geometry: geometry, Instances: instances}}
	}
	foreign := mig.Instance{Instance: sharing.Instance{Profile: "3g.40gb", ID: 9, Start: 0, Size: 4}}
	b := status.LedgerState{GPUs: []status.BookedGPU{gpu("GPU-a", false, true, config.ModeAuto),
		gpu("GPU-b", true, true, config.ModeAuto), gpu("GPU-c", true, false, config.ModeMIG, foreign),
		gpu("GPU-d", false, true, config.ModeShared)}}
	var names []string
	for _, d := range devicesOf(b, config.Pool{Mode: config.ModeAuto, FrontEnd: sharing.FrontEndDRA,
		Health: config.Health{OnFault: config.FaultEvict}}) {
		names = append(names, d.Name)
	}
	if want := []string{"gpu-a-share", "gpu-a", "gpu-d-share", "gpu-b-share", "gpu-b",
		"gpu-b-mig-3g-40gb-4", "gpu-b-mig-3g-40gb-0", "gpu-b-mig-7g-80gb-0", "gpu-c-mig-3g-40gb-4",
		"gpu-a-mig-3g-40gb-4", "gpu-a-mig-3g-40gb-0", "gpu-a-mig-7g-80gb-0"}; !slices.Equal(names, want) {
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
