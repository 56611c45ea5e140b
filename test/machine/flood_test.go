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

const (
	// floodStranger is a user who is in no group, and floodMember one who may use the node socket.
	floodStranger, floodMember = 54321, 54322
	// floodFiles is how many files the agent may have open. It is too few for all that its listeners take by default.
	floodFiles = 1024
	// floodGrowth is by how many MiB memory may grow.
	floodGrowth = 20
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
	m.agentFlags = []string{"--config", m.write(watched(", overCap: kill")), "--http", f.web, "--group", "nogroup"}
	// Ahead of whatever else runs on this machine: the test is about what the flood does to the agent.
	m.wrap = []string{"sh", "-c", fmt.Sprintf(`ulimit -n %d; chrt -r 1 true && exec chrt -r 1 "$0" "$@"; exec nice -n -10 "$0" "$@"`, floodFiles)}
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

// during runs a flood and checks what holds in every one: the agent's memory and files are bounded, no sample is missed,
// what exceeds its cap is killed, and others are served.
func (f flooded) during(begin func()) {
	f.t.Helper()
	f.kerf("metrics") // once, so that what is made for it is there
	pid := f.agent.pid()
	before, _ := f.memoryOf(pid)
	missed, taken := f.metric("kerf_watch_missed_samples_total"), f.metric("kerf_watch_tick_duration_seconds_count")
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
	if now := f.metric("kerf_watch_missed_samples_total"); now != missed {
		f.t.Errorf("%v samples were missed", now-missed)
	}
	f.t.Logf("memory +%.1f MiB of %.1f MiB, %d files, %.0f samples", grown, float64(before)/float64(mib), f.openFiles(), f.metric("kerf_watch_tick_duration_seconds_count")-taken)
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

// TestFloodOfIdleConnections opens 20,000 connections over TCP. To the sockets it does in a long run, and opens 4,000 in a
// short one.
func TestFloodOfIdleConnections(t *testing.T) {
	f := newFlooded(t)
	for _, c := range []struct {
		name  string
		user  uint32
		kind  string
		where string
	}{
		{"TCP, silent", floodStranger, "silent", "tcp:" + f.web},
		{"TCP, one request each", floodStranger, "asked", "tcp:" + f.web},
		{"node socket, silent", floodMember, "silent", "unix:" + f.dir + "/kerf.sock"},
		{"node socket, HTTP/2 without a call", floodMember, "preface", "unix:" + f.dir + "/kerf.sock"},
		{"HTTP socket, silent", floodMember, "silent", "unix:" + f.dir + "/http.sock"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := 20_000
			if c.user == floodMember {
				n = many(n, 4000)
			}
			g := f
			g.machine = f.in(t)
			g.during(func() {
				opened, rejected := g.begin(c.user, c.kind, c.where, n)
				if opened+rejected != n || opened < n*9/10 {
					t.Errorf("%d connections were opened and %d rejected, want %d", opened, rejected, n)
				}
			})
		})
	}
}

// TestFloodOfSlowReaders has 100 peers ask for the metrics, and 100 for pictures of the node, and read nothing.
func TestFloodOfSlowReaders(t *testing.T) {
	f := newFlooded(t)
	f.during(func() {
		f.begin(floodStranger, "slow", "tcp:"+f.web, 100)
		f.begin(floodMember, "slow", "unix:"+f.dir+"/http.sock", 100)
		f.begin(floodMember, "streams", "unix:"+f.dir+"/kerf.sock", 100)
	})
}

// TestFloodOfStreams opens 1,200 watches of the node. Few are taken, and pictures are made for all at once.
func TestFloodOfStreams(t *testing.T) {
	f := newFlooded(t)
	f.during(func() {
		opened, rejected := f.begin(floodMember, "streams", "unix:"+f.dir+"/kerf.sock", 1200)
		if opened == 0 || opened > 16 || opened+rejected != 1200 {
			t.Errorf("%d streams were opened and %d rejected, want at most 16 opened", opened, rejected)
		}
	})
}

// TestFloodOfNames claims under 1,000,000 distinct names in a long run, and under 100,000 in a short one.
func TestFloodOfNames(t *testing.T) {
	f := newFlooded(t)
	f.during(func() {
		n := many(1_000_000, 100_000)
		held, rejected := f.begin(floodMember, "names", "unix:"+f.dir+"/kerf.sock", n)
		if held == 0 || held+rejected != n {
			t.Errorf("%d claims were held and %d rejected", held, rejected)
		}
		t.Logf("%d claims were held", held)
	})
	if series := strings.Count(f.kerf("metrics").out, "name-"); series != 0 {
		t.Errorf("%d metrics have names of grants that ended", series)
	}
}

// TestFloodOfTheMonitor opens 20,000 connections to each of its sockets in a long run, and 4,000 in a short one. It goes on
// taking samples, within the 80 MiB that it may have.
func TestFloodOfTheMonitor(t *testing.T) {
	f := newFlooded(t)
	o := f.monitor()
	eventually(t, "first sample", func() error {
		if code := f.healthz(o.address); code != http.StatusOK {
			return fmt.Errorf("/healthz: %d", code)
		}
		return nil
	})
	for _, c := range []struct{ kind, where string }{
		{"asked", "tcp:" + o.address}, {"silent", "unix:" + f.dir + "/pods/telemetry.sock"}, {"asked", "unix:" + f.dir + "/pods/telemetry.sock"},
	} {
		pid := o.p.pid()
		n := many(20_000, 4000)
		if opened, rejected := f.begin(floodStranger, c.kind, c.where, n); opened < n*9/10 {
			t.Errorf("%s, %s: %d connections were opened and %d rejected", c.where, c.kind, opened, rejected)
		}
		if code := f.healthz(o.address); code != http.StatusOK {
			t.Errorf("/healthz of the monitor after %s, %s: %d", c.where, c.kind, code)
		}
		if _, peak := f.memoryOf(pid); peak >= 80*mib {
			t.Errorf("%s, %s: the monitor had %.1f MiB", c.where, c.kind, float64(peak)/float64(mib))
		}
	}
}
