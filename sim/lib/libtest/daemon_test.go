// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libtest_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sim/control"
	"github.com/kerf-gpu/kerf/sim/daemon"
	"github.com/kerf-gpu/kerf/sim/machine"
	"github.com/kerf-gpu/kerf/test/eventually"
)

// The simulated H100 80GB, as machines/models.yaml has it.
const (
	h100Total    = 81559 * mib
	h100Reserved = 550 * mib
	h100Context  = 500 * mib
	oom          = "CUDA_ERROR_OUT_OF_MEMORY"
)

// node runs the real daemon and returns its directory.
func node(t *testing.T, name, driver string) string {
	t.Helper()
	return nodeShared(t, name, driver, machine.SharingSlices)
}

// nodeShared is a node on which the time of GPUs is shared in some way.
func nodeShared(t *testing.T, name, driver string, how machine.Sharing) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "n") // a short path: sockets' addresses are
	if err != nil {
		t.Fatal(err)
	}
	m, err := machine.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	m, _ = m.Shared(how)
	drv, err := machine.FindDriver(driver)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(built, driver), filepath.Join(dir, "lib")); err != nil {
		t.Fatal(err)
	}
	d, err := daemon.New(daemon.Options{Dir: dir, Machine: m, Driver: drv, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("daemon: %v", err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// set changes a node as "gpusim set" does.
func set(t *testing.T, dir string, words ...string) {
	t.Helper()
	s, err := control.ParseSettings(words)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := control.Call(ctx, dir, control.Request{Command: control.CmdSet, Set: &s}, nil); err != nil {
		t.Fatal(err)
	}
}

// holders returns what the daemon says that processes hold, by pid.
func holders(t *testing.T, dir string) map[int]uint64 {
	t.Helper()
	var all []control.Process
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := control.Call(ctx, dir, control.Request{Command: control.CmdProcesses}, &all); err != nil {
		t.Fatal(err)
	}
	by := map[int]uint64{}
	for _, p := range all {
		by[p.PID] += uint64(p.Bytes)
	}
	return by
}

// usedBytes is the memory in use on all GPUs of the node. Managed memory is part of it, and of no process.
func usedBytes(t *testing.T, dir string) (sum uint64) {
	t.Helper()
	var s control.Status
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := control.Call(ctx, dir, control.Request{Command: control.CmdStatus}, &s); err != nil {
		t.Fatal(err)
	}
	for _, g := range s.GPUs {
		sum += uint64(g.UsedBytes)
	}
	return sum
}

func TestDaemonIdentity(t *testing.T) {
	for name, want := range map[string]string{
		"h100x8": "0 8", "t4x4": "0 4", "mixed": "0 4",
		"a100x8": "0 8", "h200x8": "0 8", "l40sx4": "0 4", "a30x2": "0 2", "b200x8": "0 8", "rtxpro6000x4": "0 4",
	} {
		dir := node(t, name, "r615")
		got := nvml(t, dir, "init", "system", "count", "identity,1", "nearest,0,50", "nearest,0,30")
		if got[1] != "0 615.71.09 13.615.71.09 13040" || got[2] != want {
			t.Errorf("%s: %q", name, got)
		}
		if !strings.HasPrefix(got[3], "0 GPU-") || !strings.Contains(got[3], "minor=1 index=1 00000000:") {
			t.Errorf("%s: GPU 1 is %q", name, got[3])
		}
	}
}

// A driver of 2024 has neither what NVML nor what CUDA has gained since.
func TestDaemonOldDriver(t *testing.T) {
	got := nvml(t, node(t, "a30x2", "r550"), "init", "system", "bar1,0", "has,nvmlDeviceGetMemoryInfo_v2",
		"has,nvmlDeviceGetGpuInstanceProfileInfoByIdV", "has,nvmlDeviceSetMemoryLimits_v1")
	if want := []string{"0", "0 550.163.01 12.550.163.01 12040", fmt.Sprintf("0 %d", 32*gib), "yes", "no",
		"no"}; !slices.Equal(got, want) {
		t.Errorf("r550 says %q, want %q", got, want)
	}
}

func TestDaemonMIG(t *testing.T) {
	dir := node(t, "mixed", "r615")
	got := nvml(t, dir, "init", "mig,0", "mig,1", "mig,2")
	if got[1] != "0 0 0" || !strings.HasPrefix(got[2], "0 1 1 [1 gi=1 MIG-") ||
		strings.Count(got[2], "MIG 1g.10gb set=2") != 2 ||
		!strings.Contains(got[2], "MIG 3g.40gb") || !strings.HasPrefix(got[3], notSupported) {
		t.Errorf("MIG reads: %q", got[1:])
	}
}

func TestDaemonScenarios(t *testing.T) {
	for _, driver := range []string{"r550", "r580", "r615"} {
		dir := node(t, "h100x8", driver)
		for _, name := range []string{"context", "linear", "vmm", "launch", "fork", "clone", "threads"} {
			if r := program(t, dir, nil, "check/cudacheck", name); r.code != 0 {
				t.Errorf("%s on %s: exit %d\n%s", name, driver, r.code, r.errout)
			}
		}
		for _, name := range []string{"pitched", "managed", "pools", "arrays", "graphs", "overhead", "host", "sharing",
			"v1", "packed", "green", "sparse"} {
			if r := program(t, dir, nil, "check/cudamem", name); r.code != 0 {
				t.Errorf("%s on %s: exit %d\n%s", name, driver, r.code, r.errout)
			}
		}
		team := []string{"tail", "multicast", "external", "foreign", "interop"}
		if driver != "r550" { // it has no checkpoints
			team = append(team, "checkpoint")
		}
		for _, name := range team {
			if r := program(t, dir, nil, "check/cudateam", name); r.code != 0 {
				t.Errorf("%s on %s: exit %d\n%s", name, driver, r.code, r.errout)
			}
		}
		eventually.True(t, "memory back", func() bool { return len(holders(t, dir)) == 0 })
	}
}

func TestDaemonGpuload(t *testing.T) {
	dir := node(t, "h100x8", "r615")
	for _, api := range []string{"linear", "async", "vmm", "pitched", "pool", "array", "graph", "module", "mipmap",
		"external-mipmap"} {
		r := program(t, dir, nil, "gpuload", "--json", "--api", api, "--alloc", "90GiB", "--step", "1GiB")
		got := parse(t, r.out)
		// what fits next to the context, in whole GiB
		fits := (h100Total - h100Reserved - h100Context) / gib * gib
		if r.code != 9 || got[0].Allocated != fits || got[0].Error == nil ||
			*got[0].Error != "CUDA_ERROR_OUT_OF_MEMORY" ||
			*got[0].Total != h100Total-h100Reserved || *got[0].Free != h100Total-h100Reserved-h100Context-fits {
			t.Errorf("%s: exit %d, printed %s, want %d bytes", api, r.code, r.out, fits)
		}
	}
}

// Processes see each other, with their own pids, and death gives their memory back.
func TestDaemonProcesses(t *testing.T) {
	dir := node(t, "h100x8", "r615")
	cmd, _, _ := command(t, dir, nil, "gpuload", "--alloc", "2GiB", "--fork", "2", "--hold", "10m")
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var by map[int]uint64
	eventually.True(t, "two workers with 2 GiB each", func() bool {
		by = holders(t, dir)
		full := 0
		for _, bytes := range by {
			if bytes == 2*gib+h100Context {
				full++
			}
		}
		return full == 2
	})
	got := nvml(t, dir, "init", "processes,0,9", "memory,0", "processes,1,9")
	for pid := range by {
		if !strings.Contains(got[1], fmt.Sprintf(" %d:%d", pid, 2*gib+h100Context)) {
			t.Errorf("NVML lists %q, without pid %d", got[1], pid)
		}
	}
	if want := fmt.Sprintf("used=%d", 2*(2*gib+h100Context)); !strings.Contains(got[2], " "+want) || got[3] != "0 0" {
		t.Errorf("memory %q and GPU 1's processes %q, want %s and none", got[2], got[3], want)
	}
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	eventually.True(t, "memory back", func() bool { return len(holders(t, dir)) == 0 })
}

func TestDaemonFaults(t *testing.T) {
	dir := node(t, "h100x8", "r615")
	set(t, dir, "gpu=2", "lost=true")
	got := nvml(t, dir, "init", "count", "identity,2", "identity,3")
	if got[1] != "0 8" || got[2] != lost+" handle" || !strings.Contains(got[3], "minor=3 index=3") {
		t.Errorf("with GPU 2 lost: %q", got)
	}
	set(t, dir, "gpu=2", "lost=false")
	if got := nvml(t, dir, "init", "identity,2"); !strings.Contains(got[1], "minor=2 index=2") {
		t.Errorf("with GPU 2 back: %q", got)
	}
	cmd, out, _ := command(t, dir, nil, "check/nvmlcheck", "init", "watch,1", "wait,30000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// Only events after the registration are reported, so raise it until it is.
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for waiting := true; waiting; {
		set(t, dir, "gpu=1", "xid=31")
		select {
		case err := <-ended:
			if err != nil {
				t.Fatal(err)
			}
			waiting = false
		case <-time.After(20 * time.Millisecond):
		}
	}
	if lines := strings.Split(out.String(), "\n"); lines[2] != "0 minor=1 type=8 data=31 gi=4294967295" {
		t.Errorf("event %q", lines)
	}
}

// A hard limit on a leaf cgroup is the GPU's size for what runs in it, and is where allocation ends.
func TestDaemonLimit(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("not root: limits and cgroups are root's")
	}
	group := cgroup(t)
	dir := node(t, "h100x8", "r615")
	cmd, out, _ := command(t, dir, nil, "check/nvmlcheck", "init", "set,0,"+group+",0,"+fmt.Sprint(10*gib),
		"get,0,"+group)
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("0\n0 soft=0 hard=%d used=0\n0 soft=0 hard=%d used=0\n", 10*gib,
		10*gib); out.String() != want {
		t.Fatalf("set the limit: %q, want %q", out, want)
	}
	const none = ""
	for api, want := range map[string]struct {
		allocated, free uint64
		err             string
	}{
		"linear": {9 * gib, gib - h100Context, oom}, "async": {9 * gib, gib - h100Context, oom},
		"vmm": {9 * gib, gib - h100Context, oom}, "pitched": {9 * gib, gib - h100Context, oom},
		"pool": {9 * gib, gib - h100Context, oom}, "array": {9 * gib, gib - h100Context, oom},
		"graph": {9 * gib, gib - h100Context, oom}, "module": {9 * gib, gib - h100Context, oom},
		"heap":      {9 * gib, gib - h100Context - 2*mib, oom}, // and the module that asks for it
		"sparse":    {9 * gib, gib - h100Context, oom},
		"external":  {9 * gib, gib - h100Context, oom},
		"multicast": {9 * gib, gib - h100Context - 9*2*mib, oom}, // and a granule for each object
		"printf":    {9 * gib, gib - h100Context - 2*mib, oom},
		"library":   {9 * gib, gib - h100Context, oom},
		"batch":     {12 * gib, 10*gib - h100Context, none},
		"green":     {19 * h100Context, 10*gib - 20*h100Context, oom},
		"context":   {19 * h100Context, 10*gib - 20*h100Context, oom},
		"managed":   {12 * gib, 10*gib - h100Context, none}, // no driver charges it to a limit
	} {
		cmd, out, _ := command(t, dir, nil, "gpuload", "--json", "--api", api, "--alloc", "12GiB", "--step", "1GiB")
		inside(t, cmd, group)
		_ = cmd.Run() // its status is looked at next
		got, met := parse(t, out.String()), none
		if got[0].Error != nil {
			met = *got[0].Error
		}
		if code := cmd.ProcessState.ExitCode(); (code == 9) != (want.err == oom) ||
			got[0].Allocated != want.allocated || met != want.err ||
			*got[0].Total != 10*gib || *got[0].Free != want.free {
			t.Errorf("%s in the cgroup: exit %d, %s", api, code, out)
		}
	}
	// The neighbour outside has the whole GPU.
	if r := program(t, dir, nil, "gpuload", "--json", "--alloc", "12GiB"); r.code != 0 ||
		*parse(t, r.out)[0].Total != h100Total-h100Reserved {
		t.Errorf("outside the cgroup: exit %d, %s", r.code, r.out)
	}
}

// Whatever way a process took its memory, its death gives it back.
func TestDaemonDeathOfEachFamily(t *testing.T) {
	dir := node(t, "a100x8", "r580")
	for _, api := range []string{"linear", "async", "vmm", "pitched", "managed", "pool", "array", "graph", "module",
		"heap", "context", "library", "printf", "green", "batch", "sparse", "external"} {
		t.Run(api, func(t *testing.T) {
			cmd := hold(t, dir, "--api", api)
			if got := nvml(t, dir, "init", "processes,0,9")[1]; !strings.HasPrefix(got,
				fmt.Sprintf("0 1 %d:", cmd.Process.Pid)) {
				t.Errorf("NVML lists %q, want process %d", got, cmd.Process.Pid)
			}
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			eventually.True(t, "memory back", func() bool {
				return len(holders(t, dir)) == 0 &&
					usedBytes(t, dir) == 0
			})
		})
	}
}

// A program that fills the GPU with managed memory is listed with its context alone, as NVIDIA's driver does it: the
// pages are in the GPU's use and in no process's.
func TestDaemonListsNoManagedMemory(t *testing.T) {
	dir := node(t, "h100x8", "r615")
	for _, api := range []string{"managed", "batch"} {
		cmd := hold(t, dir, "--api", api)
		if got := holders(t, dir)[cmd.Process.Pid]; got != h100Context {
			t.Errorf("%s: the process is listed with %d bytes, want its context's %d", api, got, h100Context)
		}
		want := fmt.Sprintf("0 1 %d:%d", cmd.Process.Pid, h100Context)
		if got := nvml(t, dir, "init", "processes,0,9")[1]; got != want {
			t.Errorf("%s: NVML lists %q, want %q", api, got, want)
		}
		if got := usedBytes(t, dir); got != gib+h100Context {
			t.Errorf("%s: %d bytes are in use", api, got)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		eventually.True(t, "memory back", func() bool { return usedBytes(t, dir) == 0 })
	}
}
