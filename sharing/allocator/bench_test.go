// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

func BenchmarkChoose(b *testing.B) {
	busy := topologies()["mesh"]
	for i := range busy {
		busy[i].InUse, busy[i].FreeMemory, busy[i].FreePercent = i%2 == 0, sharing.Bytes(10+i)*sharing.GiB,
			sharing.Percent(10*i)
	}
	for name, bench := range map[string]struct {
		gpus []GPUState
		r    sharing.Request
	}{
		"shared":  {busy, sharing.Request{Memory: 10 * sharing.GiB, Percent: 10, GPUs: 1}},
		"models":  {busy, sharing.Request{Memory: 10 * sharing.GiB, GPUs: 1, Models: []string{"*H100*", "!*T4*"}}},
		"over 4":  {busy, sharing.Request{Memory: 40 * sharing.GiB, GPUs: 4}},
		"whole 1": {topologies()["mesh"], sharing.Request{Kind: sharing.KindWhole, GPUs: 1}},
		"whole 4": {topologies()["mesh"], sharing.Request{Kind: sharing.KindWhole, GPUs: 4}},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Choose(bench.gpus, bench.r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("no fit", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := Choose(busy, sharing.Request{Memory: 79 * sharing.GiB, GPUs: 1}); err == nil {
				b.Fatal("it fits")
			}
		}
	})
}
