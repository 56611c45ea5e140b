// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A node has nvidia-smi and the program that sets time slices of its GPUs.
func TestNvidiaSMI(t *testing.T) {
	dir, libs := place(t)
	ok(t, "start", "--machine", "t4x4", "--driver", "r580", "--dir", dir, "--lib-dir", libs)
	ok(t, "stop", "--dir", dir)
	ok(t, "start", "--machine", "t4x4", "--driver", "r580", "--dir", dir, "--lib-dir", libs)
	run := func(args ...string) int {
		cmd := exec.Command(filepath.Join(dir, "bin", "nvidia-smi-compute-policy"), args...)
		cmd.Env = append(os.Environ(), commandVar+"=1", "GORACE=atexit_sleep_ms=0")
		var exit *exec.ExitError
		if out, err := cmd.CombinedOutput(); err != nil && !errors.As(err, &exit) {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
		return cmd.ProcessState.ExitCode()
	}
	if code := run("compute-policy", "-i", gpus(t, dir)[2].UUID, "--set-timeslice", "2"); code != 0 {
		t.Errorf("set exits %d", code)
	}
	if g := gpus(t, dir); g[2].TimeSlice != "Medium" || g[1].TimeSlice != "Default" {
		t.Errorf("time slices %q and %q", g[2].TimeSlice, g[1].TimeSlice)
	}
	if out, err := exec.Command(filepath.Join(dir, "bin", "nvidia-smi"), "-L").Output(); err != nil ||
		!strings.HasSuffix(string(out), "/nvidia-smi -L\n") {
		t.Errorf("nvidia-smi of the node: %q, %v", out, err)
	}
	if code := run("-L"); code != 2 {
		t.Errorf("what is not simulated exits %d", code)
	}
}
