// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
)

// Recall says how much of what is lent on which GPUs must come back, so that all the requests fit one after the
// other. What is free is used first. It is empty where they fit as it is; the error is that of Choose for the
// first that would not fit even then.
func Recall(gpus []GPUState, requests []sharing.Request) (map[sharing.GPURef]sharing.Bytes, error) {
	gpus = slices.Clone(gpus)
	back := map[sharing.GPURef]sharing.Bytes{}
	for _, r := range requests {
		p, err := Choose(gpus, r)
		if err != nil {
			p, err = Choose(withLent(gpus), r)
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
				back[f.GPU] += missing // at most what is lent there
				gpus[i].FreeMemory += missing
				gpus[i].Lent = gpus[i].Lent.SubFloor(missing)
			}
			gpus[i].FreeMemory = gpus[i].FreeMemory.SubFloor(f.Memory)
			gpus[i].FreePercent -= min(f.Percent, gpus[i].FreePercent)
			gpus[i].Held = true
			if f.Whole {
				gpus[i].FreeMemory, gpus[i].FreePercent = 0, 0
			}
		}
	}
	return back, nil
}

// withLent counts what is lent as free.
func withLent(gpus []GPUState) []GPUState {
	out := slices.Clone(gpus)
	for i := range out {
		// What is lent may be more than there is, after a restart or on a GPU that shrank.
		room := out[i].GPU.Usable().SubFloor(out[i].FreeMemory)
		out[i].FreeMemory, out[i].Lent = out[i].FreeMemory+min(room, out[i].Lent), 0
	}
	return out
}
