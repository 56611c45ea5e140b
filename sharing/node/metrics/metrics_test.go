// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
	"github.com/kerf-gpu/kerf/sharing"
)

var update = flag.Bool("update", false, "rewrite testdata; commit the difference only if you understand it")

const mib = 1 << 20

// One healthy GPU and one that is lost; a pod's grant with a shared cap, and a process's grant over two GPUs.
func picture() *nodeapi.GetNodeResponse {
	return &nodeapi.GetNodeResponse{
		Ready: true, AgentVersion: "v1", DriverVersion: "615.71.09",
		Config: &nodeapi.ConfigStatus{Errors: []string{"a", "b"}},
		Gpus: []*nodeapi.GPU{
			{Uuid: "GPU-0", Index: 0, Model: "H100", Pci: "0:1:0", CapacityBytes: new(uint64(80 * mib)),
				ReservedBytes: 2 * mib, UsedBytes: new(uint64(12 * mib)), GrantedBytes: 20 * mib,
				BurstBytes: 5 * mib, GrantedPercent: 25, Utilization: new(uint32(80)), Health: "healthy",
				MemoryOvercommitPercent: 125, ComputeOvercommitPercent: 200},
			{Uuid: "GPU-1", Index: 1, Model: "H100", Pci: "0:2:0", CapacityBytes: new(uint64(80 * mib)),
				Health: "lost"},
		},
		Grants: []*nodeapi.Grant{
			{Id: "k1", Name: "train", State: "Active", Level: "driver", Backend: "driver", Cgroup: "/kerf/k1",
				UserId:       1000,
				PodNamespace: "ml", PodName: "a", Container: "main",
				SharedCap: []*nodeapi.Share{{Gpu: "GPU-0", MemoryBytes: 12 * mib}}, Pids: []int32{7, 8},
				Health: "healthy", Compute: &nodeapi.Compute{By: "libkerf", Reason: "fair"},
				Shares: []*nodeapi.Share{{Gpu: "GPU-0", MemoryBytes: 10 * mib, BurstBytes: 5 * mib,
					MaxBurstBytes: 20 * mib, Percent: 25, UsedBytes: new(uint64(9 * mib)),
					Time: &nodeapi.Time{UsedPercent: new(uint32(22)), ChargedSeconds: 1.5, Launches: 40,
						LaunchesOverBudget: 2,
						ThrottledSeconds:   0.25}}}},
			{Id: "k2", State: "Active", Level: "unknown", Health: "lost",
				Shares: []*nodeapi.Share{{Gpu: "GPU-0", MemoryBytes: 10 * mib, UsedBytes: new(uint64)},
					{Gpu: "GPU-1", MemoryBytes: 10 * mib}}},
		},
	}
}

func TestExposition(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(NewCollector(func(context.Context) *nodeapi.GetNodeResponse { return picture() }))
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			t.Fatal(err)
		}
	}
	got := text.Bytes()
	const golden = "testdata/exposition.txt"
	if *update {
		if err := os.WriteFile(golden, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Error(d)
	}
	for _, absent := range []string{"kerf_gpu_memory_used_bytes", "kerf_gpu_memory_total_bytes",
		"kerf_gpu_utilization", "kerf_grant_memory_used_bytes"} {
		if strings.Contains(string(got), absent) {
			t.Errorf("%s is in the agent's metrics, but kerf-monitor measures it", absent)
		}
	}
}

func TestEvents(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	e := NewEvents(reg)
	e.Reserved(nil)
	e.Reserved(fmt.Errorf("x: %w", sharing.ErrExhausted))
	e.Activated(3*time.Millisecond, nil)
	e.Activated(time.Second, fmt.Errorf("x: %w", sharing.ErrStale))
	e.Ended()
	e.Recovered()
	e.CapRestored()
	e.Limited(nil)
	e.Limited(fmt.Errorf("x: %w", sharing.ErrConflict))
	e.ConfigRefused()
	e.MPSRestarted()
	if n := testutil.ToFloat64(e.mpsRestarts); n != 1 {
		t.Errorf("%v restarts of MPS daemons", n)
	}
	for labels, want := range map[[2]string]float64{{"reservations", "reserved"}: 1,
		{"reservations", "exhausted"}: 1,
		{"reservations", "invalid"}:   0, {"activations", "activated"}: 1, {"activations", "other"}: 1,
		{"resizes", "resized"}: 1, {"resizes", "conflict"}: 1} {
		vec := map[string]*prometheus.CounterVec{"reservations": e.reservations, "activations": e.activations,
			"resizes": e.resizes}[labels[0]]
		if got := testutil.ToFloat64(vec.WithLabelValues(labels[1])); got != want {
			t.Errorf("%v: %v, want %v", labels, got, want)
		}
	}
	if n := testutil.CollectAndCount(e.activationSeconds); n != 1 {
		t.Errorf("%d histograms", n)
	}
}

// The waiting time of pods is counted by namespace, profile, and reason of the last refusal.
func TestPlacementWait(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	e := NewEvents(reg)
	e.Placed("team", "half", nil, 20*time.Millisecond)
	e.Placed("team", "half", fmt.Errorf("x: %w", sharing.ErrExhausted), 3*time.Minute)
	e.Placed("team", "half", fmt.Errorf("x: %w", sharing.ErrExhausted), 2*time.Second)
	e.Placed("lab", "", fmt.Errorf("x: %w", sharing.ErrUnavailable), time.Second)
	const want = `
# HELP kerf_placement_wait_seconds Time from a pod's first attempt on this node to its grants, in seconds, by namespace, profile, and reason of the last rejection.
# TYPE kerf_placement_wait_seconds histogram
kerf_placement_wait_seconds_bucket{namespace="lab",profile="",reason="unavailable",le="0.01"} 0
kerf_placement_wait_seconds_bucket{namespace="lab",profile="",reason="unavailable",le="0.1"} 0
kerf_placement_wait_seconds_bucket{namespace="lab",profile="",reason="unavailable",le="1"} 1
kerf_placement_wait_seconds_bucket{namespace="lab",profile="",reason="unavailable",le="5"} 1
kerf_placement_wait_seconds_bucket{namespace="lab",profile="",reason="unavailable",le="15"} 1
kerf_placement_wait_seconds_bucket{namespace="lab",profile="",reason="unavailable",le="60"} 1
kerf_placement_wait_seconds_bucket{namespace="lab",profile="",reason="unavailable",le="300"} 1
kerf_placement_wait_seconds_bucket{namespace="lab",profile="",reason="unavailable",le="1800"} 1
kerf_placement_wait_seconds_bucket{namespace="lab",profile="",reason="unavailable",le="7200"} 1
kerf_placement_wait_seconds_bucket{namespace="lab",profile="",reason="unavailable",le="+Inf"} 1
kerf_placement_wait_seconds_sum{namespace="lab",profile="",reason="unavailable"} 1
kerf_placement_wait_seconds_count{namespace="lab",profile="",reason="unavailable"} 1
kerf_placement_wait_seconds_bucket{namespace="team",profile="half",reason="exhausted",le="0.01"} 0
kerf_placement_wait_seconds_bucket{namespace="team",profile="half",reason="exhausted",le="0.1"} 0
kerf_placement_wait_seconds_bucket{namespace="team",profile="half",reason="exhausted",le="1"} 0
kerf_placement_wait_seconds_bucket{namespace="team",profile="half",reason="exhausted",le="5"} 1
kerf_placement_wait_seconds_bucket{namespace="team",profile="half",reason="exhausted",le="15"} 1
kerf_placement_wait_seconds_bucket{namespace="team",profile="half",reason="exhausted",le="60"} 1
kerf_placement_wait_seconds_bucket{namespace="team",profile="half",reason="exhausted",le="300"} 2
kerf_placement_wait_seconds_bucket{namespace="team",profile="half",reason="exhausted",le="1800"} 2
kerf_placement_wait_seconds_bucket{namespace="team",profile="half",reason="exhausted",le="7200"} 2
kerf_placement_wait_seconds_bucket{namespace="team",profile="half",reason="exhausted",le="+Inf"} 2
kerf_placement_wait_seconds_sum{namespace="team",profile="half",reason="exhausted"} 182
kerf_placement_wait_seconds_count{namespace="team",profile="half",reason="exhausted"} 2
kerf_placement_wait_seconds_bucket{namespace="team",profile="half",reason="none",le="0.01"} 0
kerf_placement_wait_seconds_bucket{namespace="team",profile="half",reason="none",le="0.1"} 1
kerf_placement_wait_seconds_bucket{namespace="team",profile="half",reason="none",le="1"} 1
kerf_placement_wait_seconds_bucket{namespace="team",profile="half",reason="none",le="5"} 1
kerf_placement_wait_seconds_bucket{namespace="team",profile="half",reason="none",le="15"} 1
kerf_placement_wait_seconds_bucket{namespace="team",profile="half",reason="none",le="60"} 1
kerf_placement_wait_seconds_bucket{namespace="team",profile="half",reason="none",le="300"} 1
kerf_placement_wait_seconds_bucket{namespace="team",profile="half",reason="none",le="1800"} 1
kerf_placement_wait_seconds_bucket{namespace="team",profile="half",reason="none",le="7200"} 1
kerf_placement_wait_seconds_bucket{namespace="team",profile="half",reason="none",le="+Inf"} 1
kerf_placement_wait_seconds_sum{namespace="team",profile="half",reason="none"} 0.02
kerf_placement_wait_seconds_count{namespace="team",profile="half",reason="none"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "kerf_placement_wait_seconds"); err != nil {
		t.Error(err)
	}
}

func TestReactive(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	e := NewEvents(reg)
	e.Watched(time.Millisecond, 0)
	e.Watched(2*time.Millisecond, 3)
	e.OverCap(120*time.Millisecond, 3*sharing.GiB)
	e.Killed("over_cap", nil)
	e.Killed("unmanaged", nil)
	e.Evicted("over_cap", nil)
	e.Evicted("over_cap", sharing.ErrDenied)
	e.Killed("unmanaged", fmt.Errorf("x: %w", sharing.ErrStale))
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			if h := m.GetHistogram(); h != nil {
				got[name+" count"], got[name+" sum"] = float64(h.GetSampleCount()), h.GetSampleSum()
			} else if strings.HasPrefix(name, "kerf_reactive") {
				got[name] = m.GetCounter().GetValue()
			}
		}
	}
	for name, want := range map[string]float64{
		"kerf_reactive_evictions_total over_cap evicted": 1, "kerf_reactive_evictions_total over_cap refused": 1,
		"kerf_reactive_missed_samples_total":         3,
		"kerf_reactive_check_duration_seconds count": 2, "kerf_reactive_check_duration_seconds sum": 0.003,
		"kerf_reactive_detection_seconds count": 1, "kerf_reactive_detection_seconds sum": 0.12,
		"kerf_reactive_overshoot_bytes sum":  float64(3 * sharing.GiB),
		"kerf_reactive_kills_total over_cap": 1, "kerf_reactive_kills_total unmanaged": 1,
		"kerf_reactive_kills_skipped_total unmanaged": 1,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	if _, there := got["kerf_reactive_kills_skipped_total over_cap"]; there {
		t.Error("a process was counted as skipped that was killed")
	}
}

// Created instances are counted with their time and that of each step, and failed requests by their reason.
func TestMIG(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	e := NewEvents(reg)
	e.MIGCreated(false, 2*time.Second, nil)
	e.MIGCreated(true, time.Second, nil)
	e.MIGCreated(false, time.Second, fmt.Errorf("x: %w", sharing.ErrConflict))
	e.MIGStep("create-gi", 300*time.Millisecond, nil)
	e.MIGStep("create-gi", time.Millisecond, fmt.Errorf("x: %w", sharing.ErrExhausted))
	e.MIGRefused("full")
	e.MIGRefused("fragmented")
	e.MIGRefused("full")
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := strings.TrimPrefix(f.GetName(), "kerf_mig_")
			if name == f.GetName() {
				continue
			}
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			if h := m.GetHistogram(); h != nil {
				got[name] = h.GetSampleSum()
			} else {
				got[name] = m.GetCounter().GetValue()
			}
		}
	}
	want := map[string]float64{
		"instances_total created": 1, "instances_total warm": 1, "instances_total conflict": 1,
		"instance_create_duration_seconds":     2,
		"step_duration_seconds done create-gi": 0.3, "step_duration_seconds exhausted create-gi": 0.001,
		"refusals_total full": 2, "refusals_total fragmented": 1,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// The cap is the one that is enforced now, and absent where Kerf enforces none.
func TestCap(t *testing.T) {
	share := func(gpu string, memory, burst uint64) *nodeapi.Share {
		return &nodeapi.Share{Gpu: gpu, MemoryBytes: memory, BurstBytes: burst}
	}
	grant := func(backend, cgroup string, change func(*nodeapi.Grant)) *nodeapi.Grant {
		g := &nodeapi.Grant{Id: "k1", Backend: backend, Cgroup: cgroup,
			Shares: []*nodeapi.Share{share("GPU-0", 10*mib, 5*mib)}}
		if change != nil {
			change(g)
		}
		return g
	}
	for name, tt := range map[string]struct {
		grant *nodeapi.Grant
		want  float64
		known bool
	}{
		"guarantee and burst": {grant("driver", "/k1", nil), 15 * mib, true},
		"reactive backend":    {grant("reactive", "/k1", nil), 15 * mib, true},
		"no backend":          {grant("none", "/k1", nil), 0, false},
		"not activated":       {grant("driver", "", nil), 0, false},
		"init container": {grant("mps", "/k1", func(g *nodeapi.Grant) {
			g.EnforcedShares = []*nodeapi.Share{share("GPU-0", 2*mib, 0)}
		}), 2 * mib, true},
		"init container on another GPU": {grant("mps", "/k1", func(g *nodeapi.Grant) {
			g.EnforcedShares = []*nodeapi.Share{share("GPU-1", 2*mib, 0)}
		}), 0, false},
		"shared cap": {grant("libkerf", "/k1", func(g *nodeapi.Grant) {
			g.SharedCap = []*nodeapi.Share{share("GPU-0", 30*mib, 0)}
		}), 30 * mib, true},
		"whole GPU": {grant("driver", "/k1", func(g *nodeapi.Grant) { g.Shares[0].Whole = true }), 0, false},
		"MIG instance": {grant("driver", "/k1", func(g *nodeapi.Grant) {
			g.Shares[0].MigProfile = "1g.10gb"
		}), 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, known := capBytes(amount{tt.grant, "0", tt.grant.GetShares()[0]})
			if got != tt.want || known != tt.known {
				t.Errorf("cap %v, known %v; want %v, %v", got, known, tt.want, tt.known)
			}
		})
	}
}
