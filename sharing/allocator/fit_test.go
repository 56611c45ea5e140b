// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"slices"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

// Each code has a GPU that gets it, and Choose agrees with Fit about that GPU.
func TestFit(t *testing.T) {
	t.Parallel()
	const gib = sharing.GiB
	ten := sharing.Request{Memory: 10 * gib, GPUs: 1}
	whole := sharing.Request{Kind: sharing.KindWhole, GPUs: 1}
	change := func(do func(*GPUState)) GPUState {
		g := free(0, 80*gib)
		do(&g)
		return g
	}
	seen := []Code{NoInstance} // who keeps MIG instances says so
	for _, tt := range []struct {
		gpu   GPUState
		ask   sharing.Request
		code  Code
		never bool
		text  string
	}{
		{free(0, 80*gib), ten, Fits, false, ""},
		{free(0, 80*gib), whole, Fits, false, ""},
		{free(0, 80*gib), sharing.Request{Memory: gib, GPUs: 1, Models: []string{"B200"}}, OtherModel, true,
			"its model is not one of"},
		{free(0, 80*gib), sharing.Request{Memory: gib, GPUs: 1, Profile: "small", ProfileModels: []string{"B200"}},
			OtherModel, true, `profile "small"`},
		{free(0, 80*gib), sharing.Request{Memory: gib, GPUs: 1,
			UUIDs: []sharing.GPUID{"GPU-00000000-0000-0000-0000-000000000099"}}, OtherUUID, true, "UUIDs"},
		{change(func(g *GPUState) { g.GPU.Part = sharing.Instance{Profile: "1g.10gb", Size: 1} }), whole, OtherInstance,
			true, "no whole GPU"},
		{change(func(g *GPUState) { g.GPU.MIG = true }), ten, InMIGMode, true, "gives no fractions"},
		{change(func(g *GPUState) { g.GPU.MIG, g.ModeSwitchable = true, true }), ten, InMIGMode, false,
			"leaves when it is idle"},
		{change(func(g *GPUState) { g.GPU.Reserved = 80 * gib }), ten, NoMemory, true, "no usable memory"},
		{systemGPU(false), ten, OfSystem, true, sharing.NoShares},
		{systemGPU(false), sharing.Request{Percent: 25, GPUs: 1}, OfSystem, true, sharing.NoShares},
		{systemGPU(false), whole, Fits, false, ""},
		{systemGPU(true), whole, InUse, false, "is in use, the whole GPU requested"},
		{change(func(g *GPUState) { g.Levels = nil }), ten, Unenforced, false, "is unknown"},
		{change(func(g *GPUState) { g.Levels = []sharing.Level{sharing.LevelNone} }), ten, Unenforced, true,
			"no backend enforces"},
		{change(func(g *GPUState) { g.Levels = []sharing.Level{sharing.LevelReactive} }),
			sharing.Request{Memory: gib, GPUs: 1, MinLevel: sharing.LevelDriver}, BelowRequest, true,
			"driver required"},
		{change(func(g *GPUState) {
			g.Levels, g.MinLevel = []sharing.Level{sharing.LevelReactive},
				sharing.LevelDriver
		}), ten, BelowPool, true, "rules demand driver"},
		{change(func(g *GPUState) { g.GPU.Overcommit.Memory = 200 }),
			sharing.Request{Memory: gib, GPUs: 1, MinLevel: sharing.LevelDriver}, Contested, true, "times over"},
		{free(0, 8*gib), ten, TooSmall, true, "8GiB in all, 10GiB requested"},
		{change(func(g *GPUState) { g.GPU.Health, g.GPU.HealthReason = sharing.HealthUnhealthy, "XID 48" }), ten,
			NotHealthy, false, "is unhealthy: XID 48"},
		{GPUState{GPU: sharing.GPU{UUID: "GPU-1", HealthReason: "not read"}}, ten, NotHealthy, false,
			"is unknown: not read"},
		{change(func(g *GPUState) { g.GPU.Cordoned = "fan" }), ten, Cordoned, false, "is cordoned: fan"},
		{change(func(g *GPUState) { g.NoWhole = "gives shares alone" }), whole, NotWhole, false, "gives shares alone"},
		{change(func(g *GPUState) { g.Shut = "runs MPS" }), ten, NotShared, false, "runs MPS"},
		{change(func(g *GPUState) { g.InUse = true }), whole, InUse, false, "in use"},
		{change(func(g *GPUState) { g.ShareCount, g.MaxShares = 2, 2 }), ten, TooManyShares, false,
			"shared by 2 already"},
		{used(0, gib, 0), ten, NoCapacity, false, "1GiB free of 80GiB, 10GiB requested"},
	} {
		v := Fit(tt.gpu, tt.ask)
		seen = append(seen, v.Code)
		if v.Code != tt.code || v.Never != tt.never || !strings.Contains(v.Text, tt.text) ||
			v.Fits() != (v.Text == "") {
			t.Errorf("%v: %+v, want code %d, never %v, text with %q", tt.ask, v, tt.code, tt.never, tt.text)
		}
		if _, err := Choose([]GPUState{tt.gpu}, tt.ask); (err == nil) != v.Fits() {
			t.Errorf("%v: Choose says %v, Fit %+v", tt.ask, err, v)
		}
	}
	for c := Fits; c <= NoInstance; c++ {
		if !slices.Contains(seen, c) {
			t.Errorf("no GPU gets code %d", c)
		}
	}
}

// systemGPU uses the system's memory, and has a grant or none.
func systemGPU(used bool) GPUState {
	g := free(0, 0)
	g.GPU.SystemMemory, g.InUse = true, used
	return g
}
