// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/test/benchline"
)

const (
	// monitorFigureTime is how long each is measured, after it has been let settle.
	monitorFigureTime = 15 * time.Second
	settle            = 8 * time.Second
	// readers is how many streams there are of samples every 100 ms.
	readers = 20
)

// What kerf-monitor takes of a core, with the simulated driver's client that is loaded into it and asks another process
// for each answer: once for a sample each second, and once with readers of samples every 100 ms.
func TestFiguresMonitor(t *testing.T) {
	if !*figures {
		t.Skip("needs -figures (make figures)")
	}
	t.Run("instances", func(t *testing.T) {
		m := newMachine(t, setup{hardware: "h200x8", driver: "r580", noAgent: true})
		m.agentFlags = []string{"--config", m.write(head +
			"spec:\n  pools:\n  - name: default\n    allowGPUReset: true\n " +
			"   migIdleTTL: 10m\n    migLayouts: [{index: [0, 1, 2, 3, 4, 5, 6, 7], migEnabled: true}]\n")}
		m.startAgent()
		m.ready()
		m.hold(56, "--mig 1g", "--fork 28 --alloc 16MiB --hold 1h")
		const all = 56 * 28
		m.measureMonitor("instances", "8 GPUs of 7 instances, 196 processes on each", all)
	})
	t.Run("shares", func(t *testing.T) {
		m := newMachine(t, setup{})
		m.hold(40, "--memory 4GiB", "--fork 2 --alloc 16MiB --hold 1h")
		m.measureMonitor("shares", "40 grants that share 8 GPUs, 2 processes each", 80)
	})
}

// What kerf-agent has in memory for 110 grants, without Kubernetes: runtime, records, watch and node API.
func TestFiguresAgentMemory(t *testing.T) {
	if !*figures {
		t.Skip("needs -figures (make figures)")
	}
	const grants = 110
	m := newMachine(t, setup{})
	m.hold(grants, "--memory 4GiB", "--alloc 16MiB --hold 1h")
	eventually(t, "the processes", func() error {
		if n := len(m.processes()); n < grants {
			return fmt.Errorf("%d of %d", n, grants)
		}
		return nil
	})
	time.Sleep(settle)
	t.Log(benchline.Line("agent.resident", residentMiB(t, m.agent.pid(), "VmRSS"), "MiB"))
	t.Logf("FIGURE kerf-agent, %d grants, no Kubernetes: resident %s; load %s", grants, residentOf(t, m.agent.pid()),
		loadNow())
}

// hold starts so many programs, one after the other, and starts each again while it is refused: on a machine with other
// work the driver may answer so late that it counts as hung.
func (m *machine) hold(programs int, ask, work string) {
	m.t.Helper()
	for i := range programs {
		eventually(m.t, fmt.Sprintf("program %d", i), func() error {
			r := m.run(flags(fmt.Sprintf("%s --name m%d", ask, i)), load(work))
			for r.running() && r.read(r.status) == "" {
				time.Sleep(10 * time.Millisecond)
			}
			if text := r.read(r.status); text == "" || decode[runStatus](m.t, text).State != "running" {
				return fmt.Errorf("refused: %v", r.wait())
			}
			return nil
		})
	}
}

// measureMonitor waits for the processes, and measures.
func (m *machine) measureMonitor(key, what string, processes int) {
	m.t.Helper()
	eventually(m.t, "the processes", func() error {
		if n := len(m.processes()); n < processes {
			return fmt.Errorf("%d of %d", n, processes)
		}
		return nil
	})
	o := m.monitor("--interval", "1s", "--dcgm-engine", "embedded")
	m.t.Logf("FIGURE kerf-monitor, %s, a sample each second: %s", what, o.figures("monitor."+key+".second"))
	var all []*proc
	for range readers {
		cmd := exec.Command(program("kerf"), "--run-dir", m.dir, "top", "-o", "json", "--interval", "100ms")
		cmd.Env = m.env
		all = append(all, begin(m.t, m.work, "reader", cmd))
	}
	m.t.Logf("FIGURE kerf-monitor, %s, %d readers of samples every 100 ms: %s", what, readers,
		o.figures("monitor."+key+".streams"))
	m.t.Logf("FIGURE the readers: %s", m.received(all))
}

// received is what readers of the stream got, and an error of the test if one got neither a sample nor the message that
// it missed it.
func (m *machine) received(all []*proc) string {
	m.t.Helper()
	var got, missed int64
	var rates []float64
	for i, r := range all {
		var first, last streamed
		n, lost := int64(0), int64(0)
		text := r.stdout()
		for line := range strings.Lines(text[:strings.LastIndex(text, "\n")+1]) { // the last one may be half written
			if err := json.Unmarshal([]byte(line), &last); err != nil {
				m.t.Fatalf("reader %d: %v in %.200s", i, err, line)
			}
			if n++; n == 1 {
				first = last
				continue
			}
			lost += last.Missed
		}
		if n < 2 {
			m.t.Fatalf("reader %d got %d samples: %s", i, n, tail(r.stderr()))
		}
		// The monitor may have sampled more often than this reader asked for: those are not sent, and not missed.
		if all := last.Sequence - first.Sequence + 1; n+lost > all || lost == 0 && n < all*8/10 {
			m.t.Errorf("reader %d got %d samples, and the message that it missed %d, of %d", i, n, lost, all)
		}
		got, missed = got+n, missed+lost
		rates = append(rates, float64(n-1)/time.Duration(last.At-first.At).Seconds())
	}
	slices.Sort(rates)
	return fmt.Sprintf("each got %.1f to %.1f samples a second; %d in all, and %d that they were informed they missed",
		rates[0], rates[len(rates)-1], got, missed)
}

// streamed is what is read of a sample.
type streamed struct {
	Sequence int64 `json:"sequence,string"`
	Missed   int64 `json:"missed,string"`
	At       int64 `json:"atUnixNanos,string"`
}

// figures measures the monitor for some time.
func (o *monitored) figures(key string) string {
	o.t.Helper()
	time.Sleep(settle)
	cycles, cpu, began := o.value("kerf_monitor_cycles_total"), o.cpu(), time.Now()
	time.Sleep(monitorFigureTime) // a scrape meanwhile would be counted
	passed := time.Since(began)
	part := 100 * float64(o.cpu()-cpu) / float64(passed)
	o.t.Log(benchline.Line(key+".cpu", part, "%"))
	o.t.Log(benchline.Line(key+".resident", residentMiB(o.t, o.p.pid(), "VmRSS"), "MiB"))
	o.t.Log(benchline.Line(key+".resident.max", residentMiB(o.t, o.p.pid(), "VmHWM"), "MiB"))
	o.t.Log(benchline.Line(key+".sample", 1000*o.value("kerf_monitor_cycle_duration_seconds"), "ms"))
	return fmt.Sprintf("%.2f %% of a core, %.1f samples a second, the last in %.0f ms; resident %s; load %s", part,
		(o.value("kerf_monitor_cycles_total")-cycles)/passed.Seconds(),
		1000*o.value("kerf_monitor_cycle_duration_seconds"), residentOf(o.t, o.p.pid()), loadNow())
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

// residentOf is the resident memory of a process, for people.
func residentOf(t *testing.T, pid int) string {
	t.Helper()
	return fmt.Sprintf("%.0f MiB (at most %.0f, of files %.0f)", residentMiB(t, pid, "VmRSS"),
		residentMiB(t, pid, "VmHWM"), residentMiB(t, pid, "RssFile"))
}

// residentMiB is a line of /proc/PID/status in MiB.
func residentMiB(t *testing.T, pid int, key string) float64 {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	f := regexp.MustCompile(key + `:\s+(\d+) kB`).FindSubmatch(data)
	if f == nil {
		t.Fatalf("no %s in %s", key, data)
	}
	kib, err := strconv.Atoi(string(f[1]))
	if err != nil {
		t.Fatal(err)
	}
	return float64(kib) / 1024
}

func loadNow() string {
	var s syscall.Sysinfo_t
	if err := syscall.Sysinfo(&s); err != nil {
		return "unknown"
	}
	return fmt.Sprintf("%.0f", float64(s.Loads[0])/(1<<16))
}
