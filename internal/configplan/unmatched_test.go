// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package configplan

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
)

func TestUnmatched(t *testing.T) {
	gpus := []sharing.GPU{{UUID: "GPU-0", Index: 0, Model: "NVIDIA L4"},
		{UUID: "GPU-1", Index: 1, Model: "NVIDIA H100 80GB HBM3"}}
	for name, tt := range map[string]struct {
		pool config.Pool
		gpus []sharing.GPU
		want []string
	}{
		"nothing chosen": {pool: config.Pool{GPURules: []config.GPURule{{}}, MIGLayouts: []config.MIGLayout{{}}},
			gpus: gpus},
		"all there": {pool: config.Pool{
			GPURules: []config.GPURule{{Models: []string{"*L4", "*H100*"}, Indexes: []int{0, 1},
				UUIDs: []sharing.GPUID{"GPU-1"}}},
			MIGLayouts: []config.MIGLayout{{GPUs: []int{1}, PCI: []string{"0x233010DE"}}},
		}, gpus: gpus},
		"of each list what is not": {pool: config.Pool{
			GPURules: []config.GPURule{{Indexes: []int{1}}, {Models: []string{"*L4", "*A100*"}, Indexes: []int{9, 0},
				UUIDs: []sharing.GPUID{"GPU-7"}}},
			MIGLayouts: []config.MIGLayout{{}, {GPUs: []int{0, 8}}},
		}, gpus: gpus, want: []string{"gpuRules[1].model: *A100*", "gpuRules[1].index: 9", "gpuRules[1].uuid: GPU-7",
			"migLayouts[1].index: 8"}},
		"no GPU": {pool: config.Pool{MIGLayouts: []config.MIGLayout{{GPUs: []int{0}}}},
			want: []string{"migLayouts[0].index: 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, unmatched(tt.pool, tt.gpus)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
