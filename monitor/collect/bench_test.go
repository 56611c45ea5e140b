// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/monitor/attribution"
	"github.com/kerf-gpu/kerf/sharing"
)

// benchNode has GPUs with seven instances each, each granted, with processes on each. The time of the driver's answers
// is not in it.
type benchNode struct {
	fakeNode
	processes int // of a GPU
	// reported are the processes of each GPU: a source returns the same slice for as long as they are as before.
	reported map[int][]attribution.Process
}

func (b *benchNode) Read(_ context.Context, g Info) Reading {
	d := attribution.Device{Memory: attribution.Known(80 * sharing.GiB), Listed: true, Processes: b.reported[g.Index]}
	for i := range 7 {
		d.Instances = append(d.Instances,
			attribution.Instance{GI: i, Ref: sharing.InstanceRef{Profile: "1g.10gb", Start: i},
				Memory: attribution.Known(10 * sharing.GiB), Compute: 1.0 / 7})
	}
	return Reading{Device: d, Fields: map[Field]float64{FieldPower: 300}}
}

// Cgroup reads as many files as the kernel's answer is.
func (b *benchNode) Cgroup(pid int) (string, error) {
	if _, err := os.ReadFile("/proc/self/cgroup"); err != nil {
		return "", err
	}
	return fmt.Sprintf("/cg/%d-%d", pid>>16, (pid&0xffff-1)*7/b.processes), nil
}

// cpu is the time that this process has used of its processors.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkCycle is one sample of 8 GPUs of 7 instances each, whose processes live. The time of its processors is what
// counts: in thousandths of a second it is tenths of a percent of a core at one sample a second.
func BenchmarkCycle(b *testing.B) {
	for _, processes := range []int{200, 1400} {
		b.Run(fmt.Sprintf("%d processes each", processes), func(b *testing.B) {
			n := &benchNode{processes: processes, reported: map[int][]attribution.Process{},
				fakeNode: fakeNode{grants: map[string]Grant{}}}
			for g := range 8 {
				uuid := sharing.GPUID(fmt.Sprint("GPU-", g))
				n.readings = append(n.readings, Reading{Info: Info{UUID: uuid, Index: g}})
				for i := range processes { // those of one program come one after the other
					n.reported[g] = append(n.reported[g], attribution.Process{PID: g<<16 + i + 1, GI: i * 7 / processes,
						Memory: attribution.Known(sharing.GiB)})
				}
				for i := range 7 {
					id := fmt.Sprintf("%d-%d", g, i)
					x := grant(id, uuid)
					x.Attachment.Shares[0].GPU.Instance = sharing.InstanceRef{Profile: "1g.10gb", Start: i}
					n.grants[id] = x
				}
			}
			h := NewBroadcaster()
			c := New(Options{Source: n, Grants: n, Processes: n, Broadcaster: h, Log: slog.New(slog.DiscardHandler)})
			c.Cycle(b.Context()) // finds all processes
			b.ReportAllocs()
			before := cpu(b)
			for b.Loop() {
				c.Cycle(b.Context())
			}
			b.ReportMetric(float64((cpu(b)-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
			if s := h.Latest().GPUs[7]; len(s.Use.Grants) != 7 || s.Use.Unmanaged.Processes != 0 {
				b.Errorf("%d grants, %d unmanaged", len(s.Use.Grants), s.Use.Unmanaged.Processes)
			}
		})
	}
}
