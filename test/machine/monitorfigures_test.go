// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	// monitorFigureTime is how long each is measured, after it has been let settle.
	monitorFigureTime = 15 * time.Second
	settle            = 8 * time.Second
	// readers is how many streams there are of samples every 100 ms.
	readers = 20
)

// What kerf-monitor takes of a core, with the simulated driver's client that is loaded into it and asks another process for
// each answer: once for a sample each second, and once with readers of samples every 100 ms.
func TestFiguresMonitor(t *testing.T) {
	if !*figures {
		t.Skip("needs -figures (make figures)")
	}
	t.Run("instances", func(t *testing.T) {
		m := newMachine(t, setup{hardware: "h200x8", driver: "r580", noAgent: true})
		m.agentFlags = []string{"--config", m.write(head + "spec:\n  pools:\n  - name: default\n    migReset: true\n    migKeepWarm: 10m\n    mig: [{gpus: [0, 1, 2, 3, 4, 5, 6, 7], enabled: true}]\n")}
		m.startAgent()
		m.ready()
		for i := range 56 {
			m.run(flags(fmt.Sprintf("--mig 1g --name m%d", i)), load("--fork 28 --alloc 16MiB --hold 1h"))
		}
		const all = 56 * 28
		m.measureMonitor("8 GPUs of 7 instances, 196 processes on each", all)
	})
	t.Run("shares", func(t *testing.T) {
		m := newMachine(t, setup{})
		for i := range 40 {
			m.run(flags(fmt.Sprintf("--memory 4GiB --name m%d", i)), load("--fork 2 --alloc 16MiB --hold 1h"))
		}
		m.measureMonitor("40 grants that share 8 GPUs, 2 processes each", 80)
	})
}

// What kerf-agent has in memory for 110 grants, without Kubernetes: runtime, records, watch and node API.
func TestFiguresAgentMemory(t *testing.T) {
	if !*figures {
		t.Skip("needs -figures (make figures)")
	}
	const grants = 110
	m := newMachine(t, setup{})
	for i := range grants {
		m.run(flags(fmt.Sprintf("--memory 4GiB --name m%d", i)), load("--alloc 16MiB --hold 1h"))
	}
	eventually(t, "the processes", func() error {
		if n := len(m.processes()); n < grants {
			return fmt.Errorf("%d of %d", n, grants)
		}
		return nil
	})
	time.Sleep(settle)
	t.Logf("FIGURE kerf-agent, %d grants, no Kubernetes: resident %s; load %s", grants, residentOf(t, m.agent.pid()), loadNow())
}

// measureMonitor waits for the processes, and measures.
func (m *machine) measureMonitor(what string, processes int) {
	m.t.Helper()
	eventually(m.t, "the processes", func() error {
		if n := len(m.processes()); n < processes {
			return fmt.Errorf("%d of %d", n, processes)
		}
		return nil
	})
	o := m.monitor("--interval", "1s", "--dcgm-engine", "embedded")
	m.t.Logf("FIGURE kerf-monitor, %s, a sample each second: %s", what, o.figures())
	for range readers {
		cmd := exec.Command(program("kerf"), "--dir", m.dir, "top", "-o", "json", "--interval", "100ms")
		cmd.Env = m.env
		begin(m.t, m.work, "reader", cmd)
	}
	m.t.Logf("FIGURE kerf-monitor, %s, %d readers of samples every 100 ms: %s", what, readers, o.figures())
}

// figures measures the monitor for some time.
func (o *monitored) figures() string {
	o.t.Helper()
	time.Sleep(settle)
	cycles, cpu, began := o.value("kerf_monitor_cycles_total"), o.cpu(), time.Now()
	time.Sleep(monitorFigureTime) // a scrape meanwhile would be counted
	passed := time.Since(began)
	part := 100 * float64(o.cpu()-cpu) / float64(passed)
	return fmt.Sprintf("%.2f %% of a core, %.1f samples a second, the last in %.0f ms; resident %s; load %s", part,
		(o.value("kerf_monitor_cycles_total")-cycles)/passed.Seconds(), 1000*o.value("kerf_monitor_cycle_duration_seconds"), residentOf(o.t, o.p.pid()), loadNow())
}

// cpu is the time that the monitor has used of the processors.
func (o *monitored) cpu() time.Duration {
	o.t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", o.p.pid()))
	if err != nil {
		o.t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	f := strings.Fields(after)
	var ticks time.Duration
	for _, word := range f[11:13] { // user and system time
		n, err := strconv.Atoi(word)
		if err != nil {
			o.t.Fatal(err)
		}
		ticks += time.Duration(n)
	}
	return ticks * time.Second / 100
}

// value is a series without labels; 0 where it cannot be read.
func (o *monitored) value(name string) float64 {
	o.t.Helper()
	for _, l := range o.scrape(name + " ") {
		v, err := strconv.ParseFloat(strings.TrimPrefix(l, name+" "), 64)
		if err == nil {
			return v
		}
	}
	return 0
}

// residentOf is how much memory a process has, the most that it had, and what of it is its program's file.
func residentOf(t *testing.T, pid int) string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	mib := func(key string) int {
		f := regexp.MustCompile(key + `:\s+(\d+) kB`).FindSubmatch(data)
		if f == nil {
			t.Fatalf("no %s in %s", key, data)
		}
		kib, err := strconv.Atoi(string(f[1]))
		if err != nil {
			t.Fatal(err)
		}
		return kib / 1024
	}
	return fmt.Sprintf("%d MiB (at most %d, of files %d)", mib("VmRSS"), mib("VmHWM"), mib("RssFile"))
}

func loadNow() string {
	var s syscall.Sysinfo_t
	if err := syscall.Sysinfo(&s); err != nil {
		return "unknown"
	}
	return fmt.Sprintf("%.0f", float64(s.Loads[0])/(1<<16))
}
