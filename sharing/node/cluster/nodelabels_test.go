// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/internal/kube"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/status"
)

func TestLabelsOf(t *testing.T) {
	gpu := func(model string, memory sharing.Bytes, able bool, levels ...sharing.Level) status.BookedGPU {
		return status.BookedGPU{
			View: ledger.View{GPU: sharing.GPU{Model: model, Memory: memory, MIGCapable: able}}, Levels: levels,
		}
	}
	h100 := gpu("NVIDIA H100 80GB HBM3", 81559*sharing.MiB, true, sharing.LevelExclusive, sharing.LevelDriver,
		sharing.LevelReactive)
	t4 := gpu("Tesla T4", 15*sharing.GiB, false, sharing.LevelReactive)
	for name, tc := range map[string]struct {
		books status.LedgerState
		want  kube.NodeLabels
	}{
		"no GPU was looked for": {},
		"one kind": {status.LedgerState{DriverVersion: "615.43.02", GPUs: []status.BookedGPU{h100, h100}},
			kube.NodeLabels{
				Own: map[string]string{
					"kerf.dev/gpu-model": "NVIDIA-H100-80GB-HBM3", "kerf.dev/gpu-memory-gib": "79",
					"kerf.dev/enforcement-level": "driver",
					"kerf.dev/mig-capable":       "true", "kerf.dev/driver-version": "615.43.02",
				},
				GFD: map[string]string{
					"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559",
					"nvidia.com/gpu.count":   "2",
					"nvidia.com/mig.capable": "true", "nvidia.com/cuda.driver-version.full": "615.43.02",
					"nvidia.com/cuda.driver-version.major": "615", "nvidia.com/cuda.driver-version.minor": "43",
					"nvidia.com/cuda.driver-version.revision": "02",
				},
			}},
		"two kinds, the weaker counts": {status.LedgerState{GPUs: []status.BookedGPU{h100, t4}}, kube.NodeLabels{
			Own: map[string]string{"kerf.dev/gpu-model": "mixed", "kerf.dev/gpu-memory-gib": "15",
				"kerf.dev/enforcement-level": "reactive", "kerf.dev/mig-capable": "true"},
			GFD: map[string]string{"nvidia.com/gpu.product": "mixed", "nvidia.com/gpu.memory": "15360",
				"nvidia.com/gpu.count": "2", "nvidia.com/mig.capable": "true"},
		}},
		"GPUs of another tool": {status.LedgerState{GPUs: []status.BookedGPU{h100},
			Excluded: []sharing.GPU{h100.GPU, t4.GPU}}, kube.NodeLabels{
			Own: map[string]string{"kerf.dev/gpu-model": "NVIDIA-H100-80GB-HBM3", "kerf.dev/gpu-memory-gib": "79",
				"kerf.dev/enforcement-level": "driver", "kerf.dev/mig-capable": "true"},
			GFD: map[string]string{"nvidia.com/gpu.product": "mixed", "nvidia.com/gpu.memory": "15360",
				"nvidia.com/gpu.count": "3", "nvidia.com/mig.capable": "true"},
		}},
		"nothing holds": {status.LedgerState{GPUs: []status.BookedGPU{gpu("Tesla T4", sharing.GiB, false)}},
			kube.NodeLabels{
				Own: map[string]string{"kerf.dev/gpu-model": "Tesla-T4", "kerf.dev/gpu-memory-gib": "1",
					"kerf.dev/enforcement-level": "none", "kerf.dev/mig-capable": "false"},
				GFD: map[string]string{"nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/gpu.memory": "1024",
					"nvidia.com/gpu.count": "1", "nvidia.com/mig.capable": "false"},
			}},
	} {
		if d := cmp.Diff(tc.want, labelsOf(tc.books)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// Whatever a driver says, the API server takes the label.
func FuzzLabelValue(f *testing.F) {
	for _, text := range []string{"", "NVIDIA H100", "-._", "Grafik £ 3", strings.Repeat("ab-", 30)} {
		f.Add(text)
	}
	legal := regexp.MustCompile(`^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`)
	f.Fuzz(func(t *testing.T, text string) {
		if v := labelValue(text); len(v) > maxLabel || !legal.MatchString(v) {
			t.Errorf("%q of %q is no label", v, text)
		}
	})
}

// The memory of a GPU that uses the system's is unknown, and so is the least of the node.
func TestLabelsOfSystemMemory(t *testing.T) {
	l := labelsOf(status.LedgerState{GPUs: []status.BookedGPU{
		{View: ledger.View{GPU: sharing.GPU{Model: "Tesla T4", Memory: 15 * sharing.GiB}}},
		{View: ledger.View{GPU: sharing.GPU{Model: "NVIDIA GB10", Hardware: sharing.Hardware{SystemMemory: true}}}},
	}})
	if _, named := l.GFD["nvidia.com/gpu.memory"]; named || l.Own[sharing.LabelMemory] != "unknown" {
		t.Errorf("labels %+v", l)
	}
}
