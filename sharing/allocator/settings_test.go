// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"errors"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

// A pool's settings of a GPU apply to each request, and the refusal names them.
func TestSettings(t *testing.T) {
	full, room, whole, never := used(0, 40*sharing.GiB, 50), used(1, 20*sharing.GiB, 50), free(2, 80*sharing.GiB),
		free(3, 80*sharing.GiB)
	full.ShareCount, full.MaxShares = 2, 2
	room.ShareCount, room.MaxShares = 1, 2
	whole.Shut, never.NoWhole = "gives whole alone", "gives shared alone"
	gpus := []GPUState{full, room, whole, never}
	ten, all := sharing.Request{Memory: 10 * sharing.GiB, GPUs: 1}, sharing.Request{Kind: sharing.KindWhole, GPUs: 1}
	if p, err := Choose(gpus, ten); err != nil || indexes(gpus, p) != "1" {
		t.Errorf("a fraction: GPU %s, %v", indexes(gpus, p), err)
	}
	if p, err := Choose(gpus, all); err != nil || indexes(gpus, p) != "2" {
		t.Errorf("a whole GPU: GPU %s, %v", indexes(gpus, p), err)
	}
	_, err := Choose(gpus[:1], ten)
	if err == nil || !strings.Contains(err.Error(),
		"is shared by 2 already, the most that its pool allows (maxSharesPerGPU)") {
		t.Errorf("one sharer too many: %v", err)
	}
	if _, err := Choose(gpus[3:], all); err == nil || !strings.Contains(err.Error(), "gives shared alone") {
		t.Errorf("none is given whole: %v", err)
	}
}

// The level that a pool's rules demand of a GPU's fractions counts whatever the request demands, and not for all of the
// GPU.
func TestMinLevelOfAGPU(t *testing.T) {
	weak, strong := free(0, 80*sharing.GiB), free(1, 80*sharing.GiB)
	weak.Levels, weak.LevelReason, weak.MinLevel = []sharing.Level{sharing.LevelExclusive, sharing.LevelReactive},
		"libkerf: no library", sharing.LevelUserspace
	strong.Levels, strong.MinLevel = []sharing.Level{sharing.LevelExclusive, sharing.LevelDriver},
		sharing.LevelUserspace
	gpus := []GPUState{weak, strong}
	ten := sharing.Request{Memory: 10 * sharing.GiB, GPUs: 1}
	if p, err := Choose(gpus, ten); err != nil || indexes(gpus, p) != "1" {
		t.Errorf("a fraction: GPU %s, %v", indexes(gpus, p), err)
	}
	_, err := Choose(gpus[:1], ten)
	if !errors.Is(err, sharing.ErrUnsupported) ||
		!strings.Contains(err.Error(),
			"at level reactive at most, and its pool's rules demand userspace (libkerf: no library)") {
		t.Errorf("where nothing holds it so strongly: %v", err)
	}
	if p, err := Choose(gpus[:1], sharing.Request{Kind: sharing.KindWhole, GPUs: 1}); err != nil ||
		indexes(gpus, p) != "0" {
		t.Errorf("all of it: GPU %s, %v", indexes(gpus, p), err)
	}
	ten.MinLevel = sharing.LevelDriver
	if p, err := Choose(gpus, ten); err != nil || indexes(gpus, p) != "1" {
		t.Errorf("a request that demands more: GPU %s, %v", indexes(gpus, p), err)
	}
}

// Overcommitted memory is granted up to the ratio. No share is larger than the GPU. No share goes to a request that
// excludes contention. A GPU with shares is never granted whole.
func TestOvercommit(t *testing.T) {
	g := free(0, 80*sharing.GiB)
	g.GPU.Overcommit = sharing.Overcommit{Memory: 125, Compute: 200}
	g.FreeMemory, g.FreePercent = g.GPU.Bookable(), g.GPU.BookablePercent()
	ask := func(gib sharing.Bytes, percent sharing.Percent, level sharing.Level) sharing.Request {
		return sharing.Request{Memory: gib * sharing.GiB, Percent: percent, GPUs: 1, MinLevel: level}
	}
	late := g
	late.InUse, late.FreeMemory, late.FreePercent = true, 20*sharing.GiB, 110 // 80 GiB and 90% are taken
	for name, tt := range map[string]struct {
		on    GPUState
		r     sharing.Request
		error string
	}{
		"all of it":               {g, ask(80, 100, sharing.LevelUserspace), ""},
		"more than there is":      {g, ask(81, 0, sharing.LevelUserspace), "has 80GiB in all, 81GiB requested"},
		"whole":                   {g, sharing.Request{Kind: sharing.KindWhole, GPUs: 1}, ""},
		"whole, with a neighbour": {late, sharing.Request{Kind: sharing.KindWhole, GPUs: 1}, "is in use"},
		"beyond what there is":    {late, ask(20, 100, sharing.LevelUserspace), ""},
		"beyond the factor":       {late, ask(21, 0, sharing.LevelUserspace), "20GiB free of 100GiB, 21GiB requested"},
		"held against neighbours": {late, ask(1, 0, sharing.LevelDriver), "gives its memory 1.25 times over"},
	} {
		p, err := Choose([]GPUState{tt.on}, tt.r)
		if tt.error == "" && (err != nil || len(p) != 1) || tt.error != "" &&
			(err == nil || !strings.Contains(err.Error(), tt.error)) {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
}
