// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
)

// Recall says how much burst memory must come back on which GPUs, so that all the requests fit one after the other.
// It uses free memory first. It is empty if they fit already. The error is that of Choose for the first request that
// would not fit even then.
func Recall(gpus []GPUState, requests []sharing.Request) (map[sharing.GPURef]sharing.Bytes, error) {
	gpus = slices.Clone(gpus)
	back := map[sharing.GPURef]sharing.Bytes{}
	for _, r := range requests {
		p, err := Choose(gpus, r)
		if err != nil {
			p, err = Choose(withBurst(gpus), r)
		}
		if err != nil {
			return nil, err
		}
		for i := range gpus {
			f, on := p.On(gpus[i].GPU.Ref())
			if !on {
				continue
			}
			if missing := f.Memory.SubFloor(gpus[i].FreeMemory); missing > 0 {
				back[f.GPU] += missing // at most the burst memory there
				gpus[i].FreeMemory += missing
				gpus[i].Burst = gpus[i].Burst.SubFloor(missing)
			}
			gpus[i].FreeMemory = gpus[i].FreeMemory.SubFloor(f.Memory)
			gpus[i].FreePercent -= min(f.Percent, gpus[i].FreePercent)
			gpus[i].InUse = true
			if f.Whole {
				gpus[i].FreeMemory, gpus[i].FreePercent = 0, 0
			}
		}
	}
	return back, nil
}

// withBurst counts burst memory as free.
func withBurst(gpus []GPUState) []GPUState {
	out := slices.Clone(gpus)
	for i := range out {
		// Burst memory may exceed capacity after a restart, or on a GPU that shrank.
		room := out[i].GPU.Usable().SubFloor(out[i].FreeMemory)
		out[i].FreeMemory, out[i].Burst = out[i].FreeMemory+min(room, out[i].Burst), 0
	}
	return out
}
