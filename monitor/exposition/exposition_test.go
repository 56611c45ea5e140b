// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package exposition

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/kerf-gpu/kerf/monitor/attribution"
	"github.com/kerf-gpu/kerf/monitor/collect"
	"github.com/kerf-gpu/kerf/sharing"
)

var update = flag.Bool("update", false, "rewrite testdata; commit the difference only if you understand it")

const gpu0 sharing.GPUID = "GPU-0"

func pod(id string, f attribution.Share, limit collect.Cap) collect.Grant {
	return collect.Grant{
		ID: id, Name: "ml/" + id + "/train", Namespace: "ml", Pod: id, PodUID: "uid-" + id, Container: "train",
		Profile: "small", Level: "driver",
		Attachment: attribution.Attachment{Grant: id, Cgroup: "/cg/" + id, Shares: []attribution.Share{f}},
		Caps:       []collect.Cap{limit},
	}
}

func process(pid int, dir string, mib sharing.Bytes, sm attribution.Ratio) attribution.Process {
	return attribution.Process{PID: pid, GI: attribution.NoInstance, Memory: attribution.Known(mib * sharing.MiB),
		SM: sm, DRAM: sm / 2, Cgroup: dir}
}

// snapshot has these GPUs: one with two pods, an unmanaged process and a rest, a whole one of a pod, one in MIG mode,
// one without grants and with few values, and one that does not answer.
func snapshot() *collect.Snapshot {
	slot := sharing.InstanceRef{Profile: "1g.10gb", Start: 2}
	claimed := pod("b", attribution.Share{GPU: sharing.GPURef{UUID: gpu0}}, collect.Cap{Memory: 20 * sharing.GiB})
	claimed.Claims = []string{"b-gpu-x7k2p/large", "b-gpu-x7k2p/small"}
	s := &collect.Snapshot{
		Seq: 7, Took: 2 * time.Millisecond, Source: "nvml", Driver: "615.71.09", Agent: true,
		Grants: map[string]collect.Grant{
			"a": pod("a", attribution.Share{GPU: sharing.GPURef{UUID: gpu0}},
				collect.Cap{Memory: 10 * sharing.GiB, Burst: sharing.GiB, Percent: 25, Throttled: 90 * time.Second,
					Timed: true, Events: collect.CapEvents{Refused: 4, Counted: true, Violations: 2,
						Delay: 250 * time.Millisecond, Watched: true}}),
			"b": claimed,
			"w": pod("w", attribution.Share{GPU: sharing.GPURef{UUID: "GPU-1"}, Whole: true},
				collect.Cap{Memory: 80 * sharing.GiB, Percent: 100}),
			"m": pod("m", attribution.Share{GPU: sharing.GPURef{UUID: "GPU-2", Instance: slot}},
				collect.Cap{Memory: 10 * sharing.GiB}),
		},
	}
	fields := map[collect.Field]float64{
		collect.FieldMemoryTotal: 81559, collect.FieldMemoryUsed: 8192, collect.FieldMemoryFree: 72000,
		collect.FieldBusy: 80, collect.FieldMemoryBusy: 40,
		collect.FieldPower: 350.5, collect.FieldSMClock: 1980, collect.FieldTemperature: 60,
		collect.FieldEnergy: 123456,
	}
	devices := []attribution.Device{
		{
			Memory: attribution.Known(8 * sharing.GiB), SM: attribution.Known(attribution.Ratio(0.8)),
			DRAM:   attribution.Known(attribution.Ratio(0.4)),
			Energy: attribution.Known(attribution.Joules(400)), Listed: true, Timed: true,
			Encoder: attribution.Known(attribution.Ratio(0.3)), Tensor: attribution.Known(attribution.Ratio(0.4)),
			Occupancy: attribution.Known(attribution.Ratio(0.2)),
			Processes: []attribution.Process{process(1, "/cg/a", 4096, 0.5), process(2, "/cg/b", 2048, 0.25),
				process(3, "/user", 1024, 0)},
		},
		{
			Memory: attribution.Known(8 * sharing.GiB), SM: attribution.Known(attribution.Ratio(0.8)),
			Energy: attribution.Known(attribution.Joules(400)), Listed: true,
			Processes: []attribution.Process{process(4, "/cg/w", 8192, 0)},
		},
		{
			Memory: attribution.Known(8 * sharing.GiB), Listed: true,
			Processes: []attribution.Process{{PID: 5, GI: 9, Memory: attribution.Known(sharing.GiB), Cgroup: "/cg/m"}},
			Instances: []attribution.Instance{
				{GI: 9, Ref: slot, Memory: attribution.Known(2 * sharing.GiB), Compute: 1.0 / 7,
					SM: attribution.Known(attribution.Ratio(0.7)), Tensor: attribution.Known(attribution.Ratio(0.35))},
				{GI: 10, Ref: sharing.InstanceRef{Profile: "1g.10gb", Start: 3}, Compute: 1.0 / 7,
					SM: attribution.Known(attribution.Ratio(0))},
			},
		},
		{Memory: attribution.Known(8 * sharing.GiB)},
	}
	reported := []map[collect.Field]float64{fields, fields, {collect.FieldMemoryUsed: 8192},
		{collect.FieldMemoryUsed: 8192}}
	var attachments []attribution.Attachment
	living := map[string]bool{}
	for id, g := range s.Grants {
		attachments, living[id] = append(attachments, g.Attachment), true
	}
	var tally attribution.Accumulator
	for i, d := range devices {
		d.GPU = sharing.GPUID(fmt.Sprint("GPU-", i))
		g := collect.GPU{
			Info: collect.Info{UUID: d.GPU, Index: i, Minor: i, Model: "NVIDIA H100 80GB HBM3",
				PCI: fmt.Sprintf("0000:%02x:00.0", 0x1a+i)},
			Device: d, Fields: reported[i], Use: attribution.Attribute(d, attachments),
			Totals: map[attribution.Place]attribution.Total{},
		}
		tally.Add([]attribution.Sample{g.Use}, time.Second, living)
		for _, u := range append(g.Use.Grants, attribution.GrantUse{}) {
			for _, at := range []attribution.Place{
				{Grant: u.Grant, GPU: sharing.GPURef{UUID: d.GPU, Instance: u.Instance}},
				{GPU: sharing.GPURef{UUID: d.GPU}, Unmanaged: true}} {
				g.Totals[at], _ = tally.Of(at)
			}
		}
		s.GPUs = append(s.GPUs, g)
	}
	s.GPUs = append(s.GPUs, collect.GPU{Info: collect.Info{UUID: "GPU-4", Index: 4}, Err: errors.New("lost")})
	return s
}

// gather is the exposition as text. What two rows of the same labels are, and labels that are no labels, is an error.
func gather(t *testing.T, o Options) string {
	t.Helper()
	families, err := prometheus.Gatherers{New(o)}.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			t.Fatal(err)
		}
	}
	return text.String()
}

func TestExposition(t *testing.T) {
	s := snapshot()
	got := gather(t, Options{Latest: func() *collect.Snapshot { return s }, Version: "v1", Hostname: "node-1"})
	const golden = "testdata/exposition.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Error(d)
	}
	for line := range strings.Lines(got) {
		if strings.Contains(line, `"GPU-4"`) && !strings.HasPrefix(line, `kerf_gpu_up{gpu="4",gpu_uuid="GPU-4"} 0`) {
			t.Error("of a GPU that does not answer:", line)
		}
		if strings.Contains(line, `"GPU-3"`) && strings.HasPrefix(line, "kerf_usage_sm_ratio") {
			t.Error("of a GPU that does not tell its activity:", line)
		}
	}
	if text := gather(t, Options{Latest: func() *collect.Snapshot { return nil }}); text != "" {
		t.Error("before the first snapshot:", text)
	}
}

// TestLabels checks that each sample has the labels that its family declares, which the reference lists.
func TestLabels(t *testing.T) {
	s := snapshot()
	families, err := New(Options{Latest: func() *collect.Snapshot { return s }}).Gather()
	if err != nil {
		t.Fatal(err)
	}
	declared, seen := map[string][]string{}, 0
	for _, f := range describe() {
		declared[f.name] = f.shape.names()
	}
	for _, f := range families {
		want, own := declared[f.GetName()]
		if !own {
			continue
		}
		for _, m := range f.GetMetric() {
			var got []string
			for _, l := range m.GetLabel() {
				got = append(got, l.GetName())
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s: -declared +exposed:\n%s", f.GetName(), d)
			}
			seen++
		}
	}
	if seen == 0 {
		t.Error("no sample was checked")
	}
}

// TestRowsOfTheSameLabelsAreOne has grants outside of pods, and a pod that is created again with its name while the old
// one ends.
func TestRowsOfTheSameLabelsAreOne(t *testing.T) {
	s := snapshot()
	again := pod("a", attribution.Share{GPU: sharing.GPURef{UUID: gpu0}}, collect.Cap{})
	again.ID, again.Name, again.Attachment.Grant, again.Attachment.Cgroup = "a2", "ml/a/train#a2", "a2", "/cg/a2"
	run := collect.Grant{ID: "r", Name: "r", Attachment: attribution.Attachment{Grant: "r", Cgroup: "/cg/r",
		Shares: again.Attachment.Shares}}
	s.Grants["a2"], s.Grants["r"] = again, run
	var attachments []attribution.Attachment
	for _, g := range s.Grants {
		attachments = append(attachments, g.Attachment)
	}
	d := s.GPUs[0].Device
	d.Processes = append(slices.Clone(d.Processes), process(8, "/cg/a2", 100, 0), process(9, "/cg/r", 200, 0))
	s.GPUs[0].Use = attribution.Attribute(d, attachments)
	text := gather(t, Options{Latest: func() *collect.Snapshot { return s }}) // fails for two rows with the same labels
	for pod, mib := range map[string]string{"a": "4196", "b": "2048", "": "1948"} {
		want := regexp.MustCompile(`DCGM_FI_DEV_FB_USED{[^}]*gpu="0"[^}]*pod="` + pod + `"} ` + mib + "\n")
		if !want.MatchString(text) {
			t.Errorf("pod %q does not have %s MiB:\n%s", pod, mib, text)
		}
	}
}

// TestSeriesAreAsManyAsGrantsLive lets 10,000 pods come and go over a day, some at a time, with a scrape now and
// then. Neither the series nor the labels that are kept for them grow.
func TestSeriesAreAsManyAsGrantsLive(t *testing.T) {
	const pods, alive = 10_000, 5
	var latest *collect.Snapshot
	g := New(Options{Latest: func() *collect.Snapshot { return latest },
		Fields: []collect.FieldInfo{{Field: collect.FieldMemoryUsed, Name: "DCGM_FI_DEV_FB_USED"}}})
	now := time.Unix(1_000_000, 0)
	var tally attribution.Accumulator
	grants, series, kept := map[string]collect.Grant{}, 0, 0
	for i := range pods {
		now = now.Add(24 * time.Hour / pods)
		id := fmt.Sprint("pod-", i)
		grants[id] = pod(id, attribution.Share{GPU: sharing.GPURef{UUID: gpu0}}, collect.Cap{Memory: sharing.GiB})
		delete(grants, fmt.Sprint("pod-", i-alive))
		if i%10 != 0 {
			continue
		}
		d := attribution.Device{GPU: gpu0, Memory: attribution.Known(sharing.GiB), Listed: true, Timed: true}
		var attachments []attribution.Attachment
		living := map[string]bool{}
		for id, one := range grants {
			attachments, living[id] = append(attachments, one.Attachment), true
			d.Processes = append(d.Processes, process(len(d.Processes)+1, one.Attachment.Cgroup, 1, 0.01))
		}
		use := attribution.Attribute(d, attachments)
		tally.Add([]attribution.Sample{use}, 10*24*time.Hour/pods, living)
		gpu := collect.GPU{Info: collect.Info{UUID: gpu0}, Device: d, Use: use,
			Fields: map[collect.Field]float64{collect.FieldMemoryUsed: 1024},
			Totals: map[attribution.Place]attribution.Total{}}
		for id := range grants {
			at := attribution.Place{Grant: id, GPU: sharing.GPURef{UUID: gpu0}}
			gpu.Totals[at], _ = tally.Of(at)
		}
		latest = &collect.Snapshot{Seq: uint64(i) + 1, At: now, Grants: grants, GPUs: []collect.GPU{gpu}}
		families, err := g.Gather()
		if err != nil {
			t.Fatal(err)
		}
		series = 0
		for _, f := range families {
			series += len(f.GetMetric())
		}
		switch {
		case i < 2*alive:
		case kept == 0:
			kept = len(g.labels.now)
		case len(g.labels.now) != kept:
			t.Fatalf("after %d pods %d sets of labels are kept, after %d it was %d", i, len(g.labels.now), 2*alive,
				kept)
		}
	}
	if most := 20*alive + 40; series > most || series < 10*alive {
		t.Errorf("%d series for %d grants, at most %d", series, alive, most)
	}
}

func TestParseFields(t *testing.T) {
	cases := map[string]struct {
		text   string
		want   []string
		others []string
		errs   int
	}{
		"dcgm-exporter's": {
			"# comment\n\nDCGM_FI_DEV_SM_CLOCK,  gauge, SM clock frequency (in MHz).\nDCGM_FI_DEV_FAN_SPEED, gauge, " +
				"a, b\nDCGM_FI_DRIVER_VERSION, label, Driver Version\n DCGM_FI_DEV_FB_USED , gauge , \n",
			[]string{"DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_FB_USED"}, []string{"DCGM_FI_DEV_FAN_SPEED"}, 0,
		},
		"as dcgm-exporter's own of 2023 is": {
			read(t, "testdata/default-counters-2023.csv"),
			[]string{
				"DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_MEM_CLOCK", "DCGM_FI_DEV_MEMORY_TEMP", "DCGM_FI_DEV_GPU_TEMP",
				"DCGM_FI_DEV_POWER_USAGE",
				"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "DCGM_FI_DEV_GPU_UTIL",
				"DCGM_FI_DEV_MEM_COPY_UTIL",
				"DCGM_FI_DEV_ENC_UTIL", "DCGM_FI_DEV_DEC_UTIL", "DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_FB_FREE",
				"DCGM_FI_DEV_FB_USED",
				"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
				"DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "DCGM_FI_DEV_ROW_REMAP_FAILURE",
			},
			[]string{"DCGM_FI_DEV_PCIE_TX_THROUGHPUT", "DCGM_FI_DEV_PCIE_RX_THROUGHPUT",
				"DCGM_FI_DEV_VGPU_LICENSE_STATUS"}, 0,
		},
		"as its own with profiling fields is": {
			read(t, "testdata/dcp-metrics-2025.csv"),
			[]string{
				"DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_MEM_CLOCK", "DCGM_FI_DEV_MEMORY_TEMP", "DCGM_FI_DEV_GPU_TEMP",
				"DCGM_FI_DEV_POWER_USAGE",
				"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "DCGM_FI_DEV_GPU_UTIL",
				"DCGM_FI_DEV_MEM_COPY_UTIL",
				"DCGM_FI_DEV_ENC_UTIL", "DCGM_FI_DEV_DEC_UTIL", "DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_FB_FREE",
				"DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_RESERVED",
				"DCGM_FI_DEV_RETIRED_SBE", "DCGM_FI_DEV_RETIRED_DBE", "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
				"DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
				"DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "DCGM_FI_DEV_ROW_REMAP_FAILURE",
				"DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
				"DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_PROF_PCIE_TX_BYTES", "DCGM_FI_PROF_PCIE_RX_BYTES",
			},
			[]string{"DCGM_FI_DEV_VGPU_LICENSE_STATUS"}, 0,
		},
		"all errors at once": {"DCGM_FI_DEV_SM_CLOCK\nA, gage, x\nB, gauge, x\nB, gauge, x\n", nil, nil, 3},
		"nothing":            {"", []string{}, nil, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			fields, others, err := ParseFields(c.text)
			var got []string
			for _, f := range fields {
				got = append(got, f.Name)
			}
			if fields != nil && got == nil {
				got = []string{}
			}
			if d := cmp.Diff(c.want, got) + cmp.Diff(c.others, others); d != "" {
				t.Error(d)
			}
			n := 0
			if err != nil {
				if !errors.Is(err, sharing.ErrInvalid) {
					t.Error(err)
				}
				n = strings.Count(err.Error(), "\n") + 1
			}
			if n != c.errs {
				t.Errorf("%d errors, want %d: %v", n, c.errs, err)
			}
		})
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func FuzzParseFields(f *testing.F) {
	for _, s := range []string{"", "# x", "DCGM_FI_DEV_SM_CLOCK, gauge, x", "a,b", "a,label,c\na,label,c", ",,,"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		fields, _, err := ParseFields(text)
		if err != nil && fields != nil {
			t.Error("fields next to an error")
		}
		seen := map[string]bool{}
		for _, f := range fields {
			if seen[f.Name] {
				t.Errorf("%s stands twice", f.Name)
			}
			seen[f.Name] = true
		}
	})
}
