// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
)

func TestUnmatched(t *testing.T) {
	gpus := []sharing.GPU{{UUID: "GPU-0", Index: 0, Model: "NVIDIA L4"}, {UUID: "GPU-1", Index: 1, Model: "NVIDIA H100 80GB HBM3"}}
	for name, tt := range map[string]struct {
		pool config.Pool
		gpus []sharing.GPU
		want []string
	}{
		"nothing chosen": {pool: config.Pool{GPUs: []config.GPURule{{}}, MIG: []config.MIGLayout{{}}}, gpus: gpus},
		"all there": {pool: config.Pool{
			GPUs: []config.GPURule{{Models: []string{"*L4", "*H100*"}, Indexes: []int{0, 1}, UUIDs: []sharing.GPUID{"GPU-1"}}},
			MIG:  []config.MIGLayout{{GPUs: []int{1}, PCI: []string{"0x233010DE"}}},
		}, gpus: gpus},
		"of each list what is not": {pool: config.Pool{
			GPUs: []config.GPURule{{Indexes: []int{1}}, {Models: []string{"*L4", "*A100*"}, Indexes: []int{9, 0}, UUIDs: []sharing.GPUID{"GPU-7"}}},
			MIG:  []config.MIGLayout{{}, {GPUs: []int{0, 8}}},
		}, gpus: gpus, want: []string{"gpus[1].model: *A100*", "gpus[1].index: 9", "gpus[1].uuid: GPU-7", "mig[1].gpus: 8"}},
		"no GPU": {pool: config.Pool{MIG: []config.MIGLayout{{GPUs: []int{0}}}}, want: []string{"mig[0].gpus: 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tt.pool.Unmatched(tt.gpus)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
