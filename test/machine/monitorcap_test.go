// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// row is one line of an exposition.
type row struct {
	labels map[string]string
	value  float64
}

// rows scrapes series, by name.
func (o *monitored) rows(series ...string) map[string][]row {
	o.t.Helper()
	label := regexp.MustCompile(`(\w+)="([^"]*)"`)
	out := map[string][]row{}
	for _, l := range o.scrape(series...) {
		name, rest, _ := strings.Cut(l, "{")
		i := strings.LastIndex(rest, " ")
		if i < 0 {
			continue // no metrics are served
		}
		v, err := strconv.ParseFloat(rest[i+1:], 64)
		if err != nil {
			o.t.Fatalf("%q: %v", l, err)
		}
		r := row{map[string]string{}, v}
		for _, m := range label.FindAllStringSubmatch(rest[:i], -1) {
			r.labels[m[1]] = m[2]
		}
		out[name] = append(out[name], r)
	}
	return out
}

// of is the value of a grant.
func of(all []row, grant string) (float64, bool) {
	for _, r := range all {
		if r.labels["grant"] == grant {
			return r.value, true
		}
	}
	return 0, false
}

// Events at the cap of a program that exceeds it, and of one that does not, reach Prometheus: counted where a backend
// counts them, and absent where none does.
func TestMonitorTellsWhatHappensAtTheCap(t *testing.T) {
	t.Parallel()
	const refusals, violations, delay, throttled = "kerf_usage_oom_refusals_total", "kerf_usage_cap_violations_total",
		"kerf_usage_detection_seconds", "kerf_usage_throttled_seconds_total"
	const absent, zero, more = "absent", "0", "more than 0"
	for level, c := range map[string]struct {
		make           func(t *testing.T) *machine
		greedy, modest map[string]string // the modest one launches more than its percent
	}{
		"libkerf": {
			func(t *testing.T) *machine { return newPreloading(t, ", computePolicy: strict") },
			map[string]string{refusals: more, violations: zero, delay: absent, throttled: zero},
			map[string]string{refusals: zero, violations: zero, delay: absent, throttled: more},
		},
		"driver": {
			func(t *testing.T) *machine { return newMachine(t, setup{}) },
			map[string]string{refusals: absent, violations: absent, delay: absent, throttled: absent},
			map[string]string{refusals: absent, violations: absent, delay: absent, throttled: absent},
		},
		"mps": {
			func(t *testing.T) *machine { return newMPS(t, "") },
			map[string]string{refusals: absent, violations: zero, delay: absent, throttled: absent},
			map[string]string{refusals: absent, violations: zero, delay: absent, throttled: absent},
		},
		"reactive": {
			func(t *testing.T) *machine { return newWatched(t, ", onOverCap: warn") },
			map[string]string{refusals: absent, violations: more, delay: more, throttled: absent},
			map[string]string{refusals: absent, violations: zero, delay: absent, throttled: absent},
		},
	} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			m := c.make(t)
			pin := " --gpu-uuid " + m.uuid(0)
			m.run(flags("--memory 2GiB --percent 10 --name modest"+pin),
				load("--alloc 1GiB --hold 1h --launch plain --kernel 4ms --queue 8")).loads(1)
			m.run(flags("--memory 2GiB --percent 10 --name greedy"+pin),
				load("--alloc 4GiB --step 256MiB --hold 1h")).loads(1)
			o := m.monitor()
			eventually(t, "what happened at the caps", func() error {
				got := o.rows(refusals, violations, delay, throttled, "kerf_usage_memory_guaranteed_bytes")
				for grant, wants := range map[string]map[string]string{"greedy": c.greedy, "modest": c.modest} {
					if limit, _ := of(got["kerf_usage_memory_guaranteed_bytes"], grant); limit != float64(2*gib) {
						return fmt.Errorf("the cap of %s is %g", grant, limit)
					}
					for series, want := range wants {
						v, told := of(got[series], grant)
						is := map[string]bool{absent: !told, zero: told && v == 0, more: told && v > 0}
						if !is[want] {
							return fmt.Errorf("%s of %s is %g (reported: %v), want it %s", series, grant, v, told, want)
						}
					}
				}
				return nil
			})
		})
	}
}

// Two and seven share a GPU, each with another amount of memory. The GPU runs their kernels in turn, each to its end.
// Each has its own numbers: while its kernel is in the driver's samples it has the kernel's part of them, and before
// and after it has none. With what is unattributed, the parts are the GPU's in each sample.
func TestMonitorTellsSharersTheirTime(t *testing.T) {
	t.Parallel()
	for sharers, kernel := range map[int]time.Duration{2: 12 * time.Second, 7: 3 * time.Second} {
		t.Run(strconv.Itoa(sharers), func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, setup{driver: "r580", sharing: "fifo"})
			for i := 1; i <= sharers; i++ {
				m.run(flags(fmt.Sprintf("--memory 8GiB --name s%d --gpu-uuid %s", i, m.uuid(0))),
					load(fmt.Sprintf("--alloc %dMiB --hold 1h --launch plain --kernel %s --queue 1", 512*i,
						kernel))).loads(1)
			}
			o := m.monitor("--dcgm=false")
			eventually(t, "each its own memory", func() error { return o.sharersMemory(sharers) })
			worked, rested := map[string]bool{}, map[string]bool{}
			eventually(t, "a turn of each", func() error {
				got := o.rows("kerf_usage_memory_bytes", "kerf_usage_sm_ratio", "kerf_gpu_memory_used_bytes",
					"kerf_gpu_sm_ratio", "kerf_gpu_memory_excess_bytes", "kerf_gpu_sm_excess_ratio")
				if err := sumsUp(got); err != nil {
					t.Fatal(err) // of one sample, whenever it was taken
				}
				turns(sharers, got["kerf_usage_sm_ratio"], min(1, kernel.Seconds()/sharing.TimeRing.Seconds()), worked,
					rested)
				if len(worked) < sharers || len(rested) < sharers {
					return fmt.Errorf("%v had a whole turn, and %v had none; now %v", worked, rested,
						got["kerf_usage_sm_ratio"])
				}
				return nil
			})
		})
	}
}

// turns notes who had a whole turn in the driver's samples, and who had none. It leaves out samples in which one had
// more than a turn: the first ones had the GPU for longer before the others came.
func turns(sharers int, got []row, turn float64, worked, rested map[string]bool) {
	const near = 0.05
	for i := 1; i <= sharers; i++ {
		if sm, told := of(got, fmt.Sprint("s", i)); !told || sm > turn+near {
			return
		}
	}
	for i := 1; i <= sharers; i++ {
		name := fmt.Sprint("s", i)
		sm, _ := of(got, name)
		if sm > turn-near {
			worked[name] = true
		}
		if sm == 0 {
			rested[name] = true
		}
	}
}

// sharersMemory compares the reported memory of sharers with what the driver gave them.
func (o *monitored) sharersMemory(sharers int) error {
	o.t.Helper()
	held := map[string]uint64{}
	for _, p := range o.processes() {
		held[p.Cgroup] += p.Bytes
	}
	told := o.rows("kerf_usage_memory_bytes")["kerf_usage_memory_bytes"]
	for i := 1; i <= sharers; i++ {
		g := o.grant(fmt.Sprint("s", i))
		if memory, _ := of(told, g.Name); memory != float64(held[g.Cgroup]) || memory < float64(512*i)*float64(mib) {
			return fmt.Errorf("%s has %g bytes, and the driver gave it %d", g.Name, memory, held[g.Cgroup])
		}
	}
	return nil
}

// sumsUp adds up the parts of one scrape, GPU by GPU: memory is exact, and time to a millionth.
func sumsUp(got map[string][]row) error {
	for _, c := range []struct {
		parts, whole, excess string
		tolerance            float64
	}{
		{"kerf_usage_memory_bytes", "kerf_gpu_memory_used_bytes", "kerf_gpu_memory_excess_bytes", 0},
		{"kerf_usage_sm_ratio", "kerf_gpu_sm_ratio", "kerf_gpu_sm_excess_ratio", 1e-6},
	} {
		sum := map[string]float64{}
		for _, r := range got[c.parts] {
			sum[r.labels["gpu_uuid"]] += r.value
		}
		for _, r := range got[c.excess] {
			sum[r.labels["gpu_uuid"]] -= r.value
		}
		for _, r := range got[c.whole] {
			if d := math.Abs(sum[r.labels["gpu_uuid"]] - r.value); d > c.tolerance {
				return fmt.Errorf("%s: the parts are %g, %s is %g", c.parts, sum[r.labels["gpu_uuid"]], c.whole,
					r.value)
			}
		}
	}
	return nil
}

// Where there is no DCGM the monitor takes NVML by itself, says so and why, and has the same series for all that NVML
// tells.
func TestMonitorWithoutDCGM(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{})
	// The libraries look for the driver from where they are.
	without := filepath.Join(m.work, "without")
	lib := filepath.Join(without, "lib")
	if err := errors.Join(os.MkdirAll(lib, 0o755),
		os.Symlink(filepath.Join(m.sim, "dev"), filepath.Join(without, "dev"))); err != nil {
		t.Fatal(err)
	}
	all, err := filepath.Glob(filepath.Join(m.sim, "lib", "*"))
	if err != nil || len(all) == 0 {
		t.Fatal(all, err)
	}
	for _, file := range all {
		if filepath.Base(file) == "libdcgm.so.4" {
			continue
		}
		if err := os.Symlink(file, filepath.Join(lib, filepath.Base(file))); err != nil {
			t.Fatal(err)
		}
	}
	o := m.monitor()
	o.source("dcgm")
	var with map[string][]row
	eventually(t, "what DCGM tells of all GPUs", func() error {
		if with = o.rows("DCGM_FI_"); len(with["DCGM_FI_PROF_SM_ACTIVE"]) != 8 ||
			len(with["DCGM_FI_DEV_FB_RESERVED"]) != 8 {
			return fmt.Errorf("%v", with)
		}
		return nil
	})
	if len(with["DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"])+len(with["DCGM_FI_PROF_SM_OCCUPANCY"]) > 0 {
		t.Errorf("profiling fields that the GPUs do not support are reported: %v", with)
	}
	o.p.signal(syscall.SIGTERM)
	o.p.wait()
	env := m.env
	m.env = append(append([]string{}, env...), "LD_LIBRARY_PATH="+lib)
	o = m.monitor()
	m.env = env
	o.source("nvml")
	eventually(t, "why there is no DCGM", func() error {
		if text := o.p.stderr(); !strings.Contains(text, "failed to use DCGM, will use NVML only") ||
			!strings.Contains(text, "libdcgm.so.4") {
			return fmt.Errorf("it says %s", tail(text))
		}
		return nil
	})
	eventually(t, "what NVML tells", func() error {
		without := o.rows("DCGM_FI_")
		for name, all := range with {
			if !strings.HasPrefix(name, "DCGM_FI_PROF_") && len(without[name]) != len(all) {
				return fmt.Errorf("%s has %d rows, %d with DCGM: %v, %s", name, len(without[name]), len(all),
					o.scrape("kerf_gpu_up"), tail(o.p.stderr()))
			}
		}
		return nil
	})
}
