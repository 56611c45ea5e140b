// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libtest_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/control"
	"github.com/kerf-gpu/kerf/test/eventually"
)

// hold starts gpuload, which holds a GiB until the test ends, and returns when it has it.
func hold(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	cmd, _, _ := command(t, dir, nil, "gpuload", append([]string{"--alloc", "1GiB", "--hold", "10m"}, args...)...)
	cmd.WaitDelay = 10 * time.Second
	before := usedBytes(t, dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	eventually.True(t, "a GiB more in use", func() bool { return usedBytes(t, dir) >= before+gib })
	return cmd
}

// Sensors follow utilisation, and counters are as they were set.
func TestDaemonTelemetry(t *testing.T) {
	dir := node(t, "h100x8", "r615")
	set(t, dir, "gpu=0", "util=0", "ecc.corrected=7", "ecc.uncorrected=2")
	set(t, dir, "gpu=1", "util=100")
	got := nvml(t, dir, "init", "telemetry,0", "telemetry,1")
	want := []string{
		"0 power=70000/700000 sm=396 memory=2619 degrees=30 ecc=1,7,2,0 video=3",
		"0 power=700000/700000 sm=1980 memory=2619 degrees=75 ecc=1,0,0,0 video=3",
	}
	if got[1] != want[0] || got[2] != want[1] {
		t.Errorf("sensors %q, want %q", got[1:], want)
	}
}

// A process is in one of NVML's lists, and in compute's again once it has connected again.
func TestDaemonProcessLists(t *testing.T) {
	dir := node(t, "h100x8", "r615")
	pid := hold(t, dir).Process.Pid
	for list, want := range map[string]string{
		"compute": "0 compute=1 graphics=0 mps=0", "graphics": "0 compute=0 graphics=1 mps=0",
		"mps": "0 compute=0 graphics=0 mps=1",
	} {
		set(t, dir, "gpu=0", fmt.Sprintf("list.%d=%s", pid, list))
		if got := nvml(t, dir, "init", "lists,0", "lists,1"); got[1] != want ||
			got[2] != "0 compute=0 graphics=0 mps=0" {
			t.Errorf("list %s: %q, want %q", list, got[1:], want)
		}
	}
	s, err := control.ParseSettings([]string{"gpu=1", fmt.Sprintf("list.%d=mps", os.Getpid())})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err = control.Call(ctx, dir, control.Request{Command: control.CmdSet, Set: &s}, nil)
	if err == nil || !strings.Contains(err.Error(), "is not a process on gpu 1") {
		t.Errorf("a process that is on no GPU: %v, want %v", err, sharing.ErrInvalid)
	}
}

// What a graphics driver holds is the process's in both lists, all of it, and no compute mode keeps it away; CUDA adds
// nothing to it by mapping it.
func TestDaemonGraphics(t *testing.T) {
	for _, api := range []string{"graphics", "gl", "gl-image", "egl", "vdpau", "gl-array", "gl-old", "egl-consumer"} {
		dir := node(t, "h100x8", "r580")
		pid := hold(t, dir, "--api", api, "--step", "512MiB", "--touch").Process.Pid
		eventually.True(t, "memory of both", func() bool { return holders(t, dir)[pid] == gib+2*h100Context })
		got := nvml(t, dir, "init", "lists,0", "processes,0,9")
		if got[1] != "0 compute=1 graphics=1 mps=0" ||
			!strings.Contains(got[2], fmt.Sprintf(" %d:%d", pid, gib+2*h100Context)) {
			t.Errorf("%s: lists %q", api, got[1:])
		}
	}
}

// Only processes that had work have utilisation; without any there is nothing to tell.
func TestDaemonProcessUtilization(t *testing.T) {
	dir := node(t, "h100x8", "r615")
	const notFound, tooSmall = "6", "7"
	hold(t, dir)
	if got, want := nvml(t, dir, "init", "use,0")[1], fmt.Sprint(tooSmall+" 0 ", notFound, " 0 ", notFound,
		" 0"); got != want {
		t.Errorf("idle: %q, want %q", got, want)
	}
	cmd, _, _ := command(t, dir, nil, "check/cudacheck", "work")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%s 1 0 1 0 1 %d:busy", tooSmall, cmd.Process.Pid)
	eventually.True(t, "work that counts", func() bool { return nvml(t, dir, "init", "use,0")[1] == want })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
}

// One call fails or is late, and the others are not.
func TestDaemonCallFaults(t *testing.T) {
	dir := node(t, "h100x8", "r615")
	set(t, dir, "gpu=0", "error.alloc=out-of-memory", "error.telemetry=not-supported", "latency.memory=300ms")
	r := program(t, dir, nil, "gpuload", "--json", "--alloc", "1MiB")
	if got := parse(t, r.out); r.code != 9 || *got[0].Error != oom ||
		*got[0].Free != h100Total-h100Reserved-h100Context {
		t.Errorf("with allocations that fail: exit %d, %s", r.code, r.out)
	}
	if got := nvml(t, dir, "init", "telemetry,0", "telemetry,1"); !strings.HasPrefix(got[1], notSupported+" ") ||
		!strings.HasPrefix(got[2], "0 ") {
		t.Errorf("with sensors that fail on GPU 0: %q", got)
	}
	start := time.Now()
	nvml(t, dir, "init", "memory,0")
	if took := time.Since(start); took < 300*time.Millisecond {
		t.Errorf("memory was reported after %v, want 300ms at least", took)
	}
	set(t, dir, "gpu=0", "error.alloc=none", "error.telemetry=none", "latency.memory=0s")
	if r := program(t, dir, nil, "gpuload", "--json", "--alloc", "1MiB"); r.code != 0 {
		t.Errorf("with all recovered: exit %d, %s", r.code, r.out)
	}
}

// The compute mode is set by root, read back, and keeps others off the GPU.
func TestDaemonComputeMode(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("not root: the compute mode is root's")
	}
	dir := node(t, "h100x8", "r550")
	hold(t, dir)
	got := nvml(t, dir, "init", "mode,0", "mode,0,1", "mode,0,7", "mode,0,3", "mode,0", "mode,1")
	if want := []string{"0", "0 0", "2 4", "2 4", "0 3", "0 3", "0 0"}; !slices.Equal(got, want) {
		t.Errorf("modes %q, want %q", got, want)
	}
	if r := program(t, dir, nil, "gpuload", "--json"); r.code != 9 ||
		*parse(t, r.out)[0].Error != "CUDA_ERROR_DEVICE_UNAVAILABLE" {
		t.Errorf("a second process: exit %d, %s", r.code, r.out)
	}
	nvml(t, dir, "init", "mode,0,0")
	if r := program(t, dir, nil, "gpuload", "--json"); r.code != 0 {
		t.Errorf("with the default mode: exit %d, %s", r.code, r.out)
	}
}
