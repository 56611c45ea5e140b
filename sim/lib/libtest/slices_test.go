// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libtest_test

import (
	"context"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sim/control"
	"github.com/kerf-gpu/kerf/sim/machine"
	"github.com/kerf-gpu/kerf/test/eventually"
)

// Streams, events, graphs and copies work by the clock of their process as they do in real time.
func TestCUDAInSlices(t *testing.T) {
	dir := nodeShared(t, "t4x4", "r580", machine.SharingSlices)
	cmd, _, _ := command(t, dir, nil, "gpuload", "--launch", "plain", "--kernel", "50ms", "--hold", "10m")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"launch", "threads", "slices"} {
		if r := program(t, dir, nil, "check/cudacheck", name); r.code != 0 {
			t.Errorf("%s: exit %d\n%s", name, r.code, r.errout)
		}
	}
	for _, name := range []string{"pools", "graphs", "managed"} {
		if r := program(t, dir, nil, "check/cudamem", name); r.code != 0 {
			t.Errorf("%s: exit %d\n%s", name, r.code, r.errout)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
}

// Next to a program with long kernels, one with short kernels gets about half of the time. In the order of launches, it
// waits for each long kernel.
func TestSlicesAreFair(t *testing.T) {
	for how, fair := range map[machine.Sharing]bool{machine.SharingSlices: true, machine.SharingFIFO: false} {
		dir := nodeShared(t, "t4x4", "r580", how)
		long, _, _ := command(t, dir, nil, "gpuload", "--launch", "plain", "--kernel", "4s", "--hold", "10m")
		if err := long.Start(); err != nil {
			t.Fatal(err)
		}
		eventually.True(t, "the long kernel runs", func() bool {
			var s control.Status
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err := control.Call(ctx, dir, control.Request{Command: control.CmdStatus}, &s)
			return err == nil && s.GPUs[0].Utilization > 0
		})
		r := program(t, dir, nil, "gpuload", "--json", "--launch", "plain", "--kernel", "2ms", "--queue", "100",
			"--hold",
			"2s")
		if err := long.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = long.Wait() // killed
		got := part(busyLines(t, r)[0])
		t.Logf("%s: short kernels got %.2f of the GPU", how, got)
		if got > 0.2 != fair || got > 0.6 {
			t.Errorf("%s: short kernels got %.2f of the GPU", how, got)
		}
	}
}

// part is how much of the GPU's time a program got.
func part(b busyLine) float64 { return float64(b.GPU) / float64(max(b.Wall, time.Millisecond)) }
