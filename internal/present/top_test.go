// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package present

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	telemetryapi "github.com/kerf-gpu/kerf/api/telemetry/v1alpha1"
)

func topSample() *telemetryapi.Sample {
	gib := func(n float64, known string) *telemetryapi.Amount {
		return &telemetryapi.Amount{Value: n * (1 << 30), Attribution: known}
	}
	part := func(n float64, known string) *telemetryapi.Amount {
		return &telemetryapi.Amount{Value: n, Attribution: known}
	}
	used, total, sm, watts, idle := uint64(12<<30), uint64(80<<30), 0.8, 350.4, 12.0
	return &telemetryapi.Sample{
		Source: "nvml", DriverVersion: "615.1", AgentUp: true, Missed: 3,
		Gpus: []*telemetryapi.GPU{
			{Index: 0, Model: "H100", MemoryUsedBytes: &used, MemoryTotalBytes: &total, MemoryAllocatableBytes: &total,
				SmRatio: &sm, PowerWatts: &watts, Usages: []*telemetryapi.Usage{
					{Owner: "grant", Grant: "ml/a/train", Level: "driver", MemoryGuaranteedBytes: 10 << 30,
						MemoryBurstBytes: 1 << 30, ComputeGrantedRatio: 0.25, Processes: 2,
						MemoryBytes: gib(4, "process"),
						SmRatio:     part(0.5, "process"), EnergyJoules: part(175, "device-share")},
					{Owner: "grant", Grant: "b\x1b[2J", Level: "none", MemoryGuaranteedBytes: 20 << 30,
						IdleSeconds: &idle},
					{Owner: "unmanaged", Processes: 1, MemoryBytes: gib(1, "process")},
					{Owner: "unattributed", MemoryBytes: gib(7, "unattributed"), SmRatio: part(0.3, "unattributed")},
				}},
			{Index: 1, Model: "H100", Error: "lost"},
			{Index: 2, Usages: []*telemetryapi.Usage{
				{Owner: "grant", Grant: "m", InstanceProfile: "1g.10gb", InstanceStart: 2,
					MemoryGuaranteedBytes: 10 << 30, MemoryBytes: gib(2, "instance")},
				{Owner: "unmanaged"}, {Owner: "unattributed"},
			}},
		},
	}
}

func TestTop(t *testing.T) {
	const want = `source nvml, driver 615.1; 3 samples missed

GPU  MEMORY  ALLOCATABLE  SM   POWER  TEMP  MODEL
0    12GiB   80GiB        80%  350W   -     H100
1    -       -            -    -      -     no answer: lost
2    -       -            -    -      -     -

GPU          OWNER           MEMORY  LIMIT       SM   SHARE  ENERGY  IDLE  PROCS  LEVEL
0            ml/a/train      4GiB    10GiB+1GiB  50%  25%    175J~   -     2      driver
0            b?[2J           -       20GiB       -    fair   -       12s   0      none
0            (unmanaged)     1GiB    -           -    -      -       -     1      -
0            (unattributed)  7GiB    -           30%  -      -       -     0      -
2/1g.10gb@2  m               2GiB*   10GiB       -    fair   -       -     0      -

* of a MIG instance or a whole GPU   ~ a part of the GPU's value
`
	if d := cmp.Diff(want, Top(topSample(), TopView{Order: "gpu"})); d != "" {
		t.Error(d)
	}
}

// The wide view has the claims of each grant. A row of a pod has those of all its containers, each once.
func TestTopNamesClaims(t *testing.T) {
	s := topSample()
	for i, u := range s.Gpus[0].GetUsages()[:2] {
		u.Grant, u.GrantId, u.Namespace, u.Pod = "ml/a/c", string(rune('a'+i)), "ml", "a"
		u.Claims = []string{"a-gpu-x7k2p/gpu"}
	}
	for by, want := range map[string]int{"owner": 2, "pod": 1} {
		text := Top(s, TopView{By: by, Wide: true})
		if n := strings.Count(text, "a-gpu-x7k2p/gpu"); n != want || !strings.Contains(text, "  CLAIM\n") {
			t.Errorf("by %s, %d claims, want %d:\n%s", by, n, want, text)
		}
	}
	if text := Top(s, TopView{}); strings.Contains(text, "x7k2p") {
		t.Errorf("the narrow view has claims:\n%s", text)
	}
}

func TestTopOrders(t *testing.T) {
	first := map[string]string{"gpu": "ml/a/train", "memory": "(unattributed)", "sm": "ml/a/train",
		"energy": "ml/a/train", "idle": "b?[2J", "name": "(unattributed)"}
	for _, order := range TopOrders() {
		text := Top(topSample(), TopView{Order: order})
		_, rows, _ := strings.Cut(text, "LEVEL\n")
		if got := strings.Fields(rows)[1]; got != first[order] {
			t.Errorf("by %s: %q is first, want %q", order, got, first[order])
		}
	}
	if text := Top(&telemetryapi.Sample{}, TopView{}); !strings.Contains(text, "agent does not answer") ||
		strings.Contains(text, "OWNER") {
		t.Errorf("a node without anything: %s", text)
	}
}

func TestTopPerPod(t *testing.T) {
	s := topSample()
	use := func(container string, mem float64) *telemetryapi.Usage {
		idle := mem
		return &telemetryapi.Usage{
			Owner: "grant", Grant: "ml/p/" + container, GrantId: container, Namespace: "ml", Pod: "p",
			Container: container, Level: "driver", Processes: 1,
			MemoryGuaranteedBytes: 10 << 30, ComputeGrantedRatio: 0.25,
			MemoryBytes: &telemetryapi.Amount{Value: mem * (1 << 30), Attribution: "process"}, IdleSeconds: &idle,
		}
	}
	s.Gpus[0].Usages = append([]*telemetryapi.Usage{use("a", 3), use("b", 1)}, s.Gpus[0].Usages[2:]...)
	s.Gpus[2].Usages = append(s.Gpus[2].Usages, use("a", 2))
	s.Gpus[2].Usages[len(s.Gpus[2].Usages)-1].SmRatio = &telemetryapi.Amount{Value: 0.5, Attribution: "device-share"}
	const want = `GPU  OWNER           MEMORY  LIMIT  SM   SHARE  ENERGY  IDLE  PROCS  LEVEL
0,2  ml/p            6GiB    30GiB  -    75%    -       1s    3      driver
2    m               2GiB*   10GiB  -    fair   -       -     0      -
0    (unmanaged)     1GiB    -      -    -      -       -     1      -
0    (unattributed)  7GiB    -      30%  -      -       -     0      -
`
	text := Top(s, TopView{Order: "name", Reverse: true, By: "pod"})
	if !strings.Contains(text, want) {
		t.Errorf("want\n%s\ngot\n%s", want, text)
	}
	if text := Top(s, TopView{Order: "memory", Reverse: true, By: "gpu"}); strings.Contains(text, "OWNER") ||
		strings.Index(text, "\n0 ") < strings.Index(text, "\n2 ") {
		t.Errorf("GPUs alone, the emptiest first: %s", text)
	}
}
