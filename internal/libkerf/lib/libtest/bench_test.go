// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libtest_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/sharing"
)

// stubbed is a box with a driver that does nothing and has one GPU.
func stubbed(tb testing.TB) box {
	tb.Helper()
	b := box{node: node{dir: tb.TempDir()}, dir: tb.TempDir()}
	r, err := libkerf.Create(b.dir, []libkerf.Device{
		{GPU: sharing.GPURef{UUID: "GPU-01010101-0101-0101-0101-010101010101"}, Limit: gib}})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = r.Close() })
	b.region = r
	b.install(tb)
	if err := os.Symlink(filepath.Join(built, "check", "stub"), filepath.Join(b.node.dir, "lib")); err != nil {
		tb.Fatal(err)
	}
	return b
}

func pairs(tb testing.TB, b box, env []string, rounds int) float64 {
	tb.Helper()
	ns, err := strconv.ParseFloat(b.program(tb, env, "check/kerfcheck", "gpu:0", fmt.Sprintf("pairs:%d", rounds)), 64)
	if err != nil {
		tb.Fatal(err)
	}
	return ns
}

// What the library adds to an allocation and its free without other callers.
func BenchmarkAllocateAndFree(b *testing.B) {
	box := stubbed(b)
	for b.Loop() {
		without := pairs(b, box, []string{"LD_PRELOAD="}, 200000)
		with := pairs(b, box, nil, 200000)
		b.ReportMetric(with-without, "added-ns/pair")
	}
}

// What the library adds to the start of a program, one of many at once. One program has nothing to do with CUDA, and
// one makes a context and allocates.
func BenchmarkStart(b *testing.B) {
	benchmarkStart(b, "/bin/true")
}

func BenchmarkStartOfCUDA(b *testing.B) {
	benchmarkStart(b, "check/kerfcheck", "gpu:0", "take:linear:2097152", "clear")
}

func benchmarkStart(b *testing.B, program string, args ...string) {
	b.Helper()
	box := stubbed(b)
	if err := box.region.SetContext(box.region.Usage()[0].GPU, 2*mib); err != nil {
		b.Fatal(err)
	}
	for _, processes := range []int{1, 100, 300} {
		b.Run(fmt.Sprintf("processes=%d", processes), func(b *testing.B) {
			took := func(env []string) (wall, cpu time.Duration) {
				var all []*exec.Cmd
				begun := time.Now()
				for range processes {
					cmd, _, _ := box.command(b, env, program, args...)
					cmd.Stdout, cmd.Stderr = nil, nil
					if err := cmd.Start(); err != nil {
						b.Fatal(err)
					}
					all = append(all, cmd)
				}
				for _, cmd := range all {
					if err := cmd.Wait(); err != nil {
						b.Fatal(err)
					}
					cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
				}
				return time.Since(begun), cpu
			}
			var wall, cpu time.Duration
			for b.Loop() {
				without, cpuWithout := took([]string{"LD_PRELOAD="})
				with, cpuWith := took(nil)
				box.reclaim(b) // as the agent does: else the ended programs fill the cap
				wall, cpu = wall+with-without, cpu+cpuWith-cpuWithout
			}
			each := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 / float64(b.N*processes) }
			b.ReportMetric(each(wall), "added-ms/process")
			b.ReportMetric(each(cpu), "added-cpu-ms/process") // which other load does not change
		})
	}
}
