// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
)

func id(n int) sharing.GPURef {
	return sharing.GPURef{UUID: sharing.GPUID(fmt.Sprintf("GPU-00000000-0000-0000-0000-%012d", n))}
}

// free returns an empty healthy GPU.
func free(n int, size sharing.Bytes) GPUState {
	g := sharing.GPU{UUID: id(n).UUID, Index: n, Model: "NVIDIA H100", Memory: size, Health: sharing.HealthOK}
	return GPUState{GPU: g, FreeMemory: size, FreePercent: 100, Levels: []sharing.Level{sharing.LevelReactive,
		sharing.LevelDriver, sharing.LevelExclusive}}
}

// at returns an empty healthy GPU of 80 GiB with these levels.
func at(n int, levels ...sharing.Level) GPUState {
	g := free(n, 80*sharing.GiB)
	g.Levels = levels
	return g
}

// used returns a healthy GPU of 80 GiB that is shared and has so much free.
func used(n int, memory sharing.Bytes, percent sharing.Percent) GPUState {
	g := free(n, 80*sharing.GiB)
	g.FreeMemory, g.FreePercent, g.InUse = memory, percent, true
	return g
}

// indexes returns the GPUs of a placement, "0 3".
func indexes(gpus []GPUState, p sharing.Placement) string {
	var out []string
	for _, f := range p {
		for _, g := range gpus {
			if g.GPU.Ref() == f.GPU {
				out = append(out, strconv.Itoa(g.GPU.Index))
			}
		}
	}
	return strings.Join(out, " ")
}

func TestChooseShared(t *testing.T) {
	t.Parallel()
	const gib = sharing.GiB
	gib10 := sharing.Request{Memory: 10 * gib, GPUs: 1}
	with := func(r sharing.Request, change func(*sharing.Request)) sharing.Request {
		change(&r)
		return r
	}
	tests := map[string]struct {
		gpus []GPUState
		r    sharing.Request
		want string
	}{
		"the first of equals":   {[]GPUState{free(0, 80*gib), free(1, 80*gib)}, gib10, "0"},
		"shared before free":    {[]GPUState{free(0, 80*gib), used(1, 60*gib, 100)}, gib10, "1"},
		"shared before tighter": {[]GPUState{free(0, 20*gib), used(1, 79*gib, 100)}, gib10, "1"},
		"the tightest": {[]GPUState{used(0, 60*gib, 100), used(1, 11*gib, 100),
			used(2, 12*gib, 100)}, gib10, "1"},
		"tight in memory and compute": {[]GPUState{used(0, 20*gib, 90), used(1, 40*gib, 30)},
			sharing.Request{Memory: 10 * gib, Percent: 30, GPUs: 1}, "1"},
		"compute is booked out": {[]GPUState{used(0, 20*gib, 20), free(1, 80*gib)},
			sharing.Request{Memory: 10 * gib, Percent: 30, GPUs: 1}, "1"},
		"memory alone needs no compute": {[]GPUState{used(0, 20*gib, 0), free(1, 80*gib)}, gib10, "0"},
		"exactly what is left":          {[]GPUState{used(0, 10*gib, 1), free(1, 80*gib)}, gib10, "0"},
		"one byte too little":           {[]GPUState{used(0, 10*gib-1, 1), free(1, 80*gib)}, gib10, "1"},
		"leftover is a part of the GPU": {[]GPUState{free(0, 80*gib), free(1, 20*gib)}, gib10, "1"},
		"percent alone takes memory": {[]GPUState{used(0, 39*gib, 100), used(1, 40*gib, 100)},
			sharing.Request{Percent: 50, GPUs: 1}, "1"},
		"percent alone on a small GPU": {[]GPUState{used(0, 39*gib, 100), free(1, 16*gib)},
			sharing.Request{Percent: 50, GPUs: 1}, "1"},
		"spread takes the emptiest": {[]GPUState{used(0, 70*gib, 100), free(1, 80*gib), free(2, 80*gib)},
			with(gib10, func(r *sharing.Request) { r.Place = sharing.PlaceSpread }), "1"},
		"spread among the shared": {[]GPUState{used(0, 20*gib, 100), used(1, 30*gib, 100)},
			with(gib10, func(r *sharing.Request) { r.Place = sharing.PlaceSpread }), "1"},
		"over two": {[]GPUState{used(0, 9*gib, 100), used(1, 30*gib, 100), free(2, 80*gib)},
			sharing.Request{Memory: 20 * gib, GPUs: 2}, "1 2"},
		"by model": {[]GPUState{used(0, 20*gib, 100), free(1, 80*gib)},
			with(gib10, func(r *sharing.Request) { r.Models = []string{"!*h100*"} }), ""},
		"by UUID": {[]GPUState{used(0, 20*gib, 100), free(1, 80*gib)},
			with(gib10, func(r *sharing.Request) { r.UUIDs = []sharing.GPUID{id(1).UUID} }), "1"},
		"by the profile's model": {[]GPUState{free(0, 80*gib)},
			with(gib10, func(r *sharing.Request) { r.ProfileModels = []string{"*T4*"} }), ""},
		"level": {[]GPUState{free(0, 80*gib)},
			with(gib10, func(r *sharing.Request) { r.MinLevel = sharing.LevelDriver }), "0"},
		"level that no share has": {[]GPUState{free(0, 80*gib)},
			with(gib10, func(r *sharing.Request) { r.MinLevel = sharing.LevelHardware }), ""},
		"unknown level": {[]GPUState{at(0), free(1, 80*gib)}, gib10, "1"},
		"unknown level, none required": {[]GPUState{at(0)},
			with(gib10, func(r *sharing.Request) { r.MinLevel = sharing.LevelNone }), "0"},
		"not enforced": {[]GPUState{at(0, sharing.LevelExclusive, sharing.LevelNone),
			free(1, 80*gib)}, gib10, "1"},
		"not enforced, none required": {[]GPUState{at(0, sharing.LevelNone)},
			with(gib10, func(r *sharing.Request) { r.MinLevel = sharing.LevelNone }), "0"},
		"not enforced, whole": {[]GPUState{at(0, sharing.LevelNone)},
			sharing.Request{Kind: sharing.KindWhole, GPUs: 1}, "0"},
		"reactive is enough for no demand": {[]GPUState{at(0, sharing.LevelReactive)}, gib10, "0"},
		"not on one that is not healthy": {
			[]GPUState{func() GPUState { g := free(0, 80*gib); g.GPU.Health = sharing.HealthSuspect; return g }(),
				free(1, 80*gib)}, gib10, "1"},
		"not on one in MIG mode": {
			[]GPUState{func() GPUState { g := free(0, 80*gib); g.GPU.MIG = true; return g }(), free(1, 80*gib)}, gib10,
			"1"},
		"not less than the least": {[]GPUState{free(0, 50*sharing.MiB)}, sharing.Request{Percent: 1, GPUs: 1},
			""},
		"a whole one is not given in parts": {[]GPUState{used(0, 0, 0)}, gib10, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := Choose(tt.gpus, tt.r)
			if got := indexes(tt.gpus, p); got != tt.want {
				t.Errorf("placed on %q (%v), want %q", got, err, tt.want)
			}
			if noFit := new(NoFit); tt.want == "" && !errors.As(err, &noFit) {
				t.Errorf("error is %v, want a NoFit", err)
			}
			for _, f := range p {
				i := slices.IndexFunc(tt.gpus, func(g GPUState) bool { return g.GPU.Ref() == f.GPU })
				if f != tt.r.On(tt.gpus[i].GPU) {
					t.Errorf("share %+v is not what the request gives", f)
				}
			}
		})
	}
}

func TestChooseRefusesBadInput(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		gpus []GPUState
		r    sharing.Request
	}{
		"invalid request": {[]GPUState{free(0, sharing.GiB)}, sharing.Request{}},
		"open request":    {[]GPUState{free(0, sharing.GiB)}, sharing.Request{Profile: "small"}},
		"a GPU twice": {[]GPUState{free(0, sharing.GiB), free(0, sharing.GiB)},
			sharing.Request{Percent: 50, GPUs: 1}},
	} {
		if p, err := Choose(tt.gpus, tt.r); !errors.Is(err, sharing.ErrInvalid) || p != nil {
			t.Errorf("%s: %v, %v", name, p, err)
		}
	}
}

// A GPU with a grant of no amount is still not given whole to another grant.
func TestWholeMeansAlone(t *testing.T) {
	t.Parallel()
	if p, err := Choose([]GPUState{used(0, 80*sharing.GiB, 100)}, sharing.Request{Kind: sharing.KindWhole,
		GPUs: 1}); !errors.Is(err, sharing.ErrExhausted) {
		t.Errorf("placed: %v, %v", p, err)
	}
}

// The order in which GPUs are listed changes nothing, and neither does asking twice.
func TestDeterministic(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		gpus := randomGPUs(rnd)
		r := sharing.Request{GPUs: 1 + rnd.IntN(3), Kind: sharing.Kind(rnd.IntN(2)), Place: sharing.Spread(rnd.IntN(3))}
		if r.Kind == sharing.KindShared {
			r.Percent = sharing.Percent(r.GPUs * (1 + rnd.IntN(40)))
		}
		before := slices.Clone(gpus)
		want, wantErr := Choose(gpus, r)
		if diff := cmp.Diff(before, gpus); diff != "" {
			t.Fatalf("Choose changes its input:\n%s", diff)
		}
		rnd.Shuffle(len(gpus), func(i, j int) { gpus[i], gpus[j] = gpus[j], gpus[i] })
		got, err := Choose(gpus, r)
		if diff := cmp.Diff(want, got); diff != "" || fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Fatalf("%s: shuffled (-want +got):\n%s\n%v\n%v", r, diff, wantErr, err)
		}
	}
}

// randomGPUs returns GPUs of which several are alike, even in their index.
func randomGPUs(rnd *rand.Rand) []GPUState {
	var gpus []GPUState
	for n := range 1 + rnd.IntN(8) {
		g := free(n, sharing.Bytes(1+rnd.IntN(2))*40*sharing.GiB)
		g.GPU.Index, g.GPU.NUMA = n/2, n/4
		if rnd.IntN(2) == 0 {
			g.FreeMemory, g.FreePercent, g.InUse = sharing.Bytes(rnd.IntN(4))*10*sharing.GiB,
				sharing.Percent(25*rnd.IntN(5)), true
		}
		for peer := range n {
			if rnd.IntN(2) == 0 {
				g.GPU.NVLinks = append(g.GPU.NVLinks, id(peer).UUID)
			}
		}
		gpus = append(gpus, g)
	}
	return gpus
}
