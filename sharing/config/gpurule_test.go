// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

func TestGPURules(t *testing.T) {
	t.Parallel()
	const id = "GPU-4f2b1c9a-0d3e-4a56-8b7c-1d2e3f405162"
	p := decode(t, head+`spec:
  pools:
  - name: a
    mode: shared
    maxSharesPerGPU: 8
    powerLimitWatts: 400
    timeSlice: short
    gpuRules:
    - {model: ["*T4*"], excluded: true}
    - {migCapable: incapable, mode: whole}
    - {index: [1, 2], model: ["*H100*"], maxSharesPerGPU: 2, memoryReserve: 4GiB}
    - {uuid: [`+id+`], powerLimitWatts: 300, timeSlice: long}
`).Pools()[0]
	own := GPUSettings{MaxSharesPerGPU: 8, PowerLimitWatts: 400, TimeSlice: sharing.TimeSliceShort}
	with := func(change func(*GPUSettings)) GPUSettings { s := own; change(&s); return s }
	for name, tt := range map[string]struct {
		gpu  sharing.GPU
		want GPUSettings
	}{
		"none fits":     {sharing.GPU{Model: "NVIDIA A100", MIGCapable: true}, own},
		"by model":      {sharing.GPU{Model: "Tesla T4"}, with(func(s *GPUSettings) { s.Excluded = true })},
		"by capability": {sharing.GPU{Model: "NVIDIA L4"}, with(func(s *GPUSettings) { s.Mode = ModeWhole })},
		"by both": {sharing.GPU{Model: "NVIDIA H100", Index: 2, MIGCapable: true},
			with(func(s *GPUSettings) { s.MaxSharesPerGPU, s.MemoryReserve = 2, 4*sharing.GiB })},
		"by one of both": {sharing.GPU{Model: "NVIDIA H100", Index: 3, MIGCapable: true}, own},
		"by UUID": {sharing.GPU{UUID: id, MIGCapable: true},
			with(func(s *GPUSettings) { s.PowerLimitWatts, s.TimeSlice = 300, sharing.TimeSliceLong })},
		"the first of two": {sharing.GPU{UUID: id, Model: "NVIDIA H100", Index: 1, MIGCapable: true},
			with(func(s *GPUSettings) { s.MaxSharesPerGPU, s.MemoryReserve = 2, 4*sharing.GiB })},
	} {
		if got := p.Of(tt.gpu); got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
	if !p.AllowsMode(Mode.Shared) || !p.AllowsMode(Mode.Whole) || p.AllowsMode(Mode.MIG) {
		t.Error("the pool offers what neither it nor a rule says, or lacks it")
	}
	c := decode(t, head+"spec:\n  prices: {currency: EUR, perGPUHour: [{model: '*', price: 2}]}\n  pools: [{name: a, "+
		"perGPUHour: 3.5}, {name: b, nodeSelector: {x: y}}]\n")
	for i, want := range []float64{3.5, 2} {
		if got, ok := c.PricesIn(c.Pools()[i]).Of("H100"); !ok || got != want {
			t.Errorf("price in pool %d is %v", i, got)
		}
	}
}

func TestGPURuleMistakes(t *testing.T) {
	t.Parallel()
	_, err := Decode([]byte(head + `spec:
  pools:
  - name: a
    maxSharesPerGPU: 0
    powerLimitWatts: 300W
    perGPUHour: 1
    gpuRules:
    - {}
    - {excluded: true, maxSharesPerGPU: 2}
    - {model: [], index: [], uuid: [GPU-1], mode: auto}
    - {migCapable: capabel, memoryReserve: lots, index: [1, 1], maxSharesPerGPU: 1001}
`))
	checkLines(t, err, []string{
		`line 6: spec.pools[0].maxSharesPerGPU "0" is not a number of shares; write a whole number from 1 to 1000`,
		`line 7: spec.pools[0].powerLimitWatts "300W" is not a whole number`,
		"line 8: spec.pools[0].perGPUHour is a price without a currency",
		"line 10: spec.pools[0].gpuRules[0] changes nothing",
		"line 11: spec.pools[0].gpuRules[1].excluded leaves the GPUs to others, and settings follow",
		"line 12: spec.pools[0].gpuRules[2].model is an empty list",
		"line 12: spec.pools[0].gpuRules[2].index is an empty list",
		`line 12: spec.pools[0].gpuRules[2].mode "auto" is not what a GPU gives`,
		`line 12: spec.pools[0].gpuRules[2].uuid[0] "GPU-1"`,
		`line 13: spec.pools[0].gpuRules[3].migCapable "capabel" is not a choice of GPUs; did you mean capable? ` +
			`write any, capable or incapable`,
		`line 13: spec.pools[0].gpuRules[3].memoryReserve "lots" is not a size`,
		`line 13: spec.pools[0].gpuRules[3].maxSharesPerGPU "1001" is not a number of shares`,
		`line 13: spec.pools[0].gpuRules[3].index[1] "1" is not an index, or stands twice`,
	})
}
