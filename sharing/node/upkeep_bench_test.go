// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/node/gpudriver"
	"github.com/kerf-gpu/kerf/sharing/node/lifecycle"
)

// BenchmarkUpkeepOfManyProcesses is one check of the usage file of a grant with 4,000 real processes, of which the
// named number have a slot. The driver lists eight of them.
func BenchmarkUpkeepOfManyProcesses(b *testing.B) {
	for _, counting := range []int{8, libkerf.MaxProcesses} {
		b.Run(fmt.Sprintf("counting=%d", counting), func(b *testing.B) {
			g := newPreloaded(b, preloading)
			_, a := g.share(4)
			group, err := g.bench.opt.Cgroups.Open(g.dir(a), 0)
			if err != nil {
				b.Fatal(err)
			}
			pids := forks(b, group, 4000)
			for i, pid := range pids[:counting] {
				g.counts(a, i, &tenant{Peer: lifecycle.Peer{PID: pid}}, sharing.MiB)
			}
			var listed []gpudriver.ProcessUse
			for _, pid := range pids[:8] {
				listed = append(listed, gpudriver.ProcessUse{PID: pid, Used: 2 * sharing.MiB, Known: true})
			}
			g.holds(listed...)
			for range 3 {
				g.bench.upkeep(b.Context())
			}
			if u := g.usage(a); u.Overhead != 8*sharing.MiB || u.Used != sharing.Bytes(counting)*sharing.MiB {
				b.Fatalf("%+v", u)
			}
			for b.Loop() {
				g.bench.upkeep(b.Context())
			}
		})
	}
}

// forks starts processes in a cgroup that sleep until the end of the benchmark.
func forks(b *testing.B, group cgroup.Group, number int) []int {
	b.Helper()
	in, write, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	script := `read go; exec 3<&0; i=1; while [ $i -lt "$0" ]; do { read end <&3; } & i=$((i+1)); done; echo; wait`
	cmd := exec.Command("sh", "-c", script, fmt.Sprint(number))
	cmd.Stdin = in
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := write.Close(); err != nil {
			b.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			b.Error(err)
		}
	})
	if err := in.Close(); err != nil {
		b.Fatal(err)
	}
	if err := group.Add(cmd.Process.Pid); err != nil {
		b.Fatal(err)
	}
	if _, err := fmt.Fprintln(write); err != nil {
		b.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		b.Fatal(err)
	}
	pids, err := group.Procs()
	if err != nil || len(pids) < number {
		b.Fatalf("%d processes: %v", len(pids), err)
	}
	return pids
}
