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

	nodev1 "github.com/kerf-gpu/kerf/api/node/v1"
	"github.com/kerf-gpu/kerf/sharing"
)

var update = flag.Bool("update", false, "rewrite testdata; commit the difference only if you understand it")

const mib = 1 << 20

// One GPU whose use is known and one that does not answer; a named grant, an unnamed one over two GPUs, and
// one whose use cannot be told.
func picture() *nodev1.GetNodeResponse {
	return &nodev1.GetNodeResponse{
		Ready: true, AgentVersion: "v1", DriverVersion: "615.71.09", Config: &nodev1.ConfigStatus{Errors: []string{"a", "b"}},
		Gpus: []*nodev1.GPU{
			{Uuid: "GPU-0", Index: 0, Model: "H100", Pci: "0:1:0", MemoryBytes: 80 * mib, ReservedBytes: 2 * mib, UsedBytes: 12 * mib, UsedKnown: true, GrantedBytes: 20 * mib, LentBytes: 5 * mib, GrantedPercent: 25, Utilization: 80, Health: "healthy", MemoryOvercommitPercent: 125, ComputeOvercommitPercent: 200},
			{Uuid: "GPU-1", Index: 1, Model: "H100", Pci: "0:2:0", MemoryBytes: 80 * mib, Utilization: -1, Health: "lost"},
		},
		Grants: []*nodev1.Grant{
			{Id: "k1", Name: "train", State: "leased", Level: "driver", Uid: 1000, Joint: []*nodev1.Fragment{{Gpu: "GPU-0", MemoryBytes: 12 * mib}}, Pids: []int32{7, 8}, Health: "healthy", Compute: &nodev1.Compute{By: "libkerf", Why: "fair"}, Fragments: []*nodev1.Fragment{{Gpu: "GPU-0", MemoryBytes: 10 * mib, LentBytes: 5 * mib, BurstBytes: 20 * mib, Percent: 25, UsedBytes: 9 * mib, UsedKnown: true, Time: &nodev1.Time{UsedPercent: 22, ChargedSeconds: 1.5, Launches: 40, LaunchesPastBudget: 2, WaitedSeconds: 0.25}}}},
			{Id: "k2", State: "leased", Level: "unknown", Health: "lost", Fragments: []*nodev1.Fragment{{Gpu: "GPU-0", MemoryBytes: 10 * mib, UsedKnown: true}, {Gpu: "GPU-1", MemoryBytes: 10 * mib}}},
		},
	}
}

func TestExposition(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(NewCollector(func(context.Context) *nodev1.GetNodeResponse { return picture() }))
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
	for _, absent := range []string{`kerf_gpu_memory_used_bytes{index="1"`, `kerf_gpu_utilization_percent{index="1"`, `kerf_grant_memory_used_bytes{grant="k2",uuid="GPU-1"`} {
		if strings.Contains(string(got), absent) {
			t.Errorf("%s is exposed although it is not known", absent)
		}
	}
}

func TestEvents(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	e := NewEvents(reg)
	e.Claimed(nil)
	e.Claimed(fmt.Errorf("x: %w", sharing.ErrExhausted))
	e.Armed(3*time.Millisecond, nil)
	e.Armed(time.Second, fmt.Errorf("x: %w", sharing.ErrStale))
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
	for labels, want := range map[[2]string]float64{{"claims", "held"}: 1, {"claims", "exhausted"}: 1, {"claims", "invalid"}: 0, {"arms", "leased"}: 1, {"arms", "other"}: 1, {"limits", "changed"}: 1, {"limits", "conflict"}: 1} {
		vec := map[string]*prometheus.CounterVec{"claims": e.claims, "arms": e.arms, "limits": e.limits}[labels[0]]
		if got := testutil.ToFloat64(vec.WithLabelValues(labels[1])); got != want {
			t.Errorf("%v: %v, want %v", labels, got, want)
		}
	}
	if n := testutil.CollectAndCount(e.armSeconds); n != 1 {
		t.Errorf("%d histograms", n)
	}
}

// How long pods waited is told by namespace, profile, and why the last try before was refused.
func TestPlacementWait(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	e := NewEvents(reg)
	e.Placed("team", "half", nil, 20*time.Millisecond)
	e.Placed("team", "half", fmt.Errorf("x: %w", sharing.ErrExhausted), 3*time.Minute)
	e.Placed("team", "half", fmt.Errorf("x: %w", sharing.ErrExhausted), 2*time.Second)
	e.Placed("lab", "", fmt.Errorf("x: %w", sharing.ErrUnavailable), time.Second)
	const want = `
# HELP kerf_placement_wait_seconds Time from a pod's first attempt on this node to its grants, by namespace, profile, and reason of the last rejection.
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

func TestWatch(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	e := NewEvents(reg)
	e.Watched(time.Millisecond, 0)
	e.Watched(2*time.Millisecond, 3)
	e.OverCap(120*time.Millisecond, 3*sharing.GiB)
	e.Killed("over_cap", nil)
	e.Killed("stranger", nil)
	e.Evicted("over_cap", nil)
	e.Evicted("over_cap", sharing.ErrDenied)
	e.Killed("stranger", fmt.Errorf("x: %w", sharing.ErrStale))
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
			} else if strings.HasPrefix(name, "kerf_watch") {
				got[name] = m.GetCounter().GetValue()
			}
		}
	}
	for name, want := range map[string]float64{
		"kerf_watch_evictions_total over_cap evicted": 1, "kerf_watch_evictions_total over_cap refused": 1,
		"kerf_watch_missed_samples_total":        3,
		"kerf_watch_tick_duration_seconds count": 2, "kerf_watch_tick_duration_seconds sum": 0.003,
		"kerf_watch_detection_delay_seconds count": 1, "kerf_watch_detection_delay_seconds sum": 0.12,
		"kerf_watch_overshoot_bytes sum":  float64(3 * sharing.GiB),
		"kerf_watch_kills_total over_cap": 1, "kerf_watch_kills_total stranger": 1, "kerf_watch_spared_total stranger": 1,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	if _, there := got["kerf_watch_spared_total over_cap"]; there {
		t.Error("a process was counted as spared that was killed")
	}
}

// What is cut is counted with its time and that of each step, and what nobody gets by its reason.
func TestMIG(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	e := NewEvents(reg)
	e.MIGCut(false, 2*time.Second, nil)
	e.MIGCut(true, time.Second, nil)
	e.MIGCut(false, time.Second, fmt.Errorf("x: %w", sharing.ErrConflict))
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
		"instances_total cut": 1, "instances_total warm": 1, "instances_total conflict": 1, "cut_duration_seconds": 2,
		"step_duration_seconds done create-gi": 0.3, "step_duration_seconds exhausted create-gi": 0.001,
		"refusals_total full": 2, "refusals_total fragmented": 1,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}
