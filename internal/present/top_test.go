// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package present

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	telemetryv1 "github.com/kerf-gpu/kerf/api/telemetry/v1"
)

func topSample() *telemetryv1.Sample {
	gib := func(n float64, known string) *telemetryv1.Amount {
		return &telemetryv1.Amount{Value: n * (1 << 30), Known: known}
	}
	part := func(n float64, known string) *telemetryv1.Amount { return &telemetryv1.Amount{Value: n, Known: known} }
	used, total, sm, watts, idle := uint64(12<<30), uint64(80<<30), 0.8, 350.4, 12.0
	return &telemetryv1.Sample{
		Source: "nvml", DriverVersion: "615.1", AgentUp: true, Missed: 3,
		Gpus: []*telemetryv1.GPU{
			{Index: 0, Model: "H100", MemoryUsedBytes: &used, MemoryTotalBytes: &total, SmRatio: &sm, PowerWatts: &watts, Uses: []*telemetryv1.Use{
				{Owner: "grant", Grant: "ml/a/train", Level: "driver", MemoryLimitBytes: 10 << 30, MemoryLentBytes: 1 << 30, ComputeLimitRatio: 0.25, Processes: 2, MemoryBytes: gib(4, "process"), SmRatio: part(0.5, "process"), EnergyJoules: part(175, "device-share")},
				{Owner: "grant", Grant: "b\x1b[2J", Level: "none", MemoryLimitBytes: 20 << 30, IdleSeconds: &idle},
				{Owner: "stranger", Processes: 1, MemoryBytes: gib(1, "process")},
				{Owner: "unattributed", MemoryBytes: gib(7, "unattributed"), SmRatio: part(0.3, "unattributed")},
			}},
			{Index: 1, Model: "H100", Error: "lost"},
			{Index: 2, Uses: []*telemetryv1.Use{
				{Owner: "grant", Grant: "m", InstanceProfile: "1g.10gb", InstanceStart: 2, MemoryLimitBytes: 10 << 30, MemoryBytes: gib(2, "instance")},
				{Owner: "stranger"}, {Owner: "unattributed"},
			}},
		},
	}
}

func TestTop(t *testing.T) {
	const want = `source nvml, driver 615.1; 3 samples missed

GPU  MEMORY  OF     SM   POWER  TEMP  MODEL
0    12GiB   80GiB  80%  350W   -     H100
1    -       -      -    -      -     no answer: lost
2    -       -      -    -      -     -

GPU          OWNER        MEMORY  LIMIT       SM   SHARE  ENERGY  IDLE  PROCS  LEVEL
0            ml/a/train   4GiB    10GiB+1GiB  50%  25%    175J~   -     2      driver
0            b?[2J        -       20GiB       -    fair   -       12s   0      none
0            (strangers)  1GiB    -           -    -      -       -     1      -
0            (nobody's)   7GiB    -           30%  -      -       -     0      -
2/1g.10gb@2  m            2GiB*   10GiB       -    fair   -       -     0      -

* of a MIG instance or a whole GPU   ~ a part of the GPU's value
`
	if d := cmp.Diff(want, Top(topSample(), "gpu")); d != "" {
		t.Error(d)
	}
}

func TestTopOrders(t *testing.T) {
	first := map[string]string{"gpu": "ml/a/train", "memory": "(nobody's)", "sm": "ml/a/train", "energy": "ml/a/train", "idle": "b?[2J", "name": "(nobody's)"}
	for _, order := range TopOrders() {
		text := Top(topSample(), order)
		_, rows, _ := strings.Cut(text, "LEVEL\n")
		if got := strings.Fields(rows)[1]; got != first[order] {
			t.Errorf("by %s: %q is first, want %q", order, got, first[order])
		}
	}
	if text := Top(&telemetryv1.Sample{}, "gpu"); !strings.Contains(text, "agent is away") || strings.Contains(text, "OWNER") {
		t.Errorf("a node without anything: %s", text)
	}
}
