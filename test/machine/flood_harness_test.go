// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// flooded is a machine with a grant that the reactive backend watches.
type flooded struct {
	*machine
	// web is the address of its metrics.
	web string
	// program is the helper, where every user can run it.
	program string
	steady  *run
}

func newFlooded(t *testing.T) flooded {
	t.Helper()
	m := newMachine(t, setup{hardware: "t4x4", driver: "r580", noAgent: true})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := flooded{machine: m, web: l.Addr().String(), program: m.work + "/flood"}
	if err := copyProgram(os.Args[0], f.program); err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	m.agentFlags = []string{"--config", m.write(watched(", onOverCap: kill")), "--metrics-bind-address", f.web,
		"--group",
		"nogroup"}
	// Ahead of whatever else runs on this machine: the test is about what the flood does to the agent.
	m.wrap = []string{"sh", "-c", fmt.Sprintf(
		`ulimit -n %d; chrt -r 1 true && exec chrt -r 1 "$0" "$@"; exec nice -n -10 "$0" "$@"`, floodFiles)}
	m.startAgent()
	m.ready()
	f.steady = m.run(flags("--memory 4GiB --name steady"), load("--alloc 1GiB --hold 1h"))
	wantLoad(t, f.steady.loads(1)[0], "", gib, gib)
	m.looks(3)
	return f
}

// begin starts a flood and waits until it is complete. It goes on until the test ends.
func (f flooded) begin(user uint32, kind, where string, n int) (opened, rejected int) {
	f.t.Helper()
	cmd := exec.Command(f.program, helperFlood, kind, where, strconv.Itoa(n))
	cmd.Env = append(os.Environ(), helperEnv+"=1")
	group := uint32(54321)
	if user == floodMember {
		group = nogroup
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: group}}
	in, err := cmd.StdinPipe()
	if err != nil {
		f.t.Fatal(err)
	}
	p := begin(f.t, f.work, "flood", cmd)
	f.t.Cleanup(func() { _ = in.Close() })
	eventually(f.t, kind+" flood", func() error {
		if _, err := fmt.Sscanf(p.read(p.out), "opened %d rejected %d", &opened, &rejected); err == nil {
			return nil
		}
		if !p.running() {
			f.t.Fatalf("flood %s: %v", kind, p.wait())
		}
		return io.ErrUnexpectedEOF
	})
	return opened, rejected
}

// memoryOf is what a process has of memory: now, and at most since resetPeak.
func (f flooded) memoryOf(pid int) (now, peak uint64) {
	f.t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		f.t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var kib uint64
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kib); err == nil {
			now = kib << 10
		}
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kib); err == nil {
			peak = kib << 10
		}
	}
	if now == 0 || peak == 0 {
		f.t.Fatalf("memory of process %d: %q", pid, data)
	}
	return now, peak
}

func (f flooded) resetPeak(pid int) {
	f.t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// openFiles is how many files the agent has open.
func (f flooded) openFiles() int {
	f.t.Helper()
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", f.agent.pid()))
	if err != nil {
		f.t.Fatal(err)
	}
	return len(all)
}

// metric is the sum of a metric's series whose line has all of these.
func (f flooded) metric(name string, parts ...string) (sum float64) {
	f.t.Helper()
	found := false
next:
	for line := range strings.Lines(f.kerf("metrics").out) {
		series, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || !strings.HasPrefix(series, name) {
			continue
		}
		for _, part := range parts {
			if !strings.Contains(series, part) {
				continue next
			}
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			f.t.Fatal(err)
		}
		sum, found = sum+v, true
	}
	if !found {
		f.t.Fatalf("no metric %s %q", name, parts)
	}
	return sum
}

// during runs a flood and checks what holds in every one: the agent's memory and files are bounded, no sample is
// missed, what exceeds its cap is killed, and others are served.
func (f flooded) during(begin func()) {
	f.t.Helper()
	f.kerf("metrics") // once, so that what is made for it is there
	pid := f.agent.pid()
	before, _ := f.memoryOf(pid)
	missed, taken := f.metric("kerf_reactive_missed_samples_total"),
		f.metric("kerf_reactive_check_duration_seconds_count")
	f.resetPeak(pid)
	begin()
	greedy := f.run(flags("--memory 1GiB --name greedy"), load("--alloc 3GiB --hold 1h"))
	wantKilled(f.t, greedy)
	f.looks(20)
	if code := f.healthz(f.web); code != http.StatusOK {
		f.t.Errorf("/healthz during the flood: %d", code)
	}
	if n := f.openFiles(); n > floodFiles-200 {
		f.t.Errorf("the agent has %d of %d files open", n, floodFiles)
	}
	grown := f.wantLittleGrowth(pid, before)
	if now := f.metric("kerf_reactive_missed_samples_total"); now != missed {
		f.t.Errorf("%v samples were missed", now-missed)
	}
	f.t.Logf("memory +%.1f MiB of %.1f MiB, %d files, %.0f samples", grown, float64(before)/float64(mib), f.openFiles(),
		f.metric("kerf_reactive_check_duration_seconds_count")-taken)
	if !f.steady.running() {
		f.t.Error("a grant within its cap ended")
	}
}

// wantLittleGrowth returns by how many MiB a process grew at most since resetPeak.
func (f flooded) wantLittleGrowth(pid int, before uint64) float64 {
	f.t.Helper()
	_, peak := f.memoryOf(pid)
	grown := (float64(peak) - float64(before)) / float64(mib)
	if grown >= floodGrowth {
		f.t.Errorf("memory grew by %.1f MiB, want less than %d", grown, floodGrowth)
	}
	return grown
}

// healthz asks as kubelet does, over TCP.
func (f flooded) healthz(address string) int {
	f.t.Helper()
	c := http.Client{Timeout: *patience, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := c.Get("http://" + address + "/healthz")
	if err != nil {
		f.t.Errorf("/healthz: %v", err)
		return 0
	}
	_ = r.Body.Close()
	return r.StatusCode
}

// many is the number of a flood: the long one, or in a short run a part of it.
func many(long, short int) int {
	if soaking() {
		return long
	}
	return short
}
