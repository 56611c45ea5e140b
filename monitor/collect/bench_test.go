// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/monitor/attribution"
	"github.com/kerf-gpu/kerf/sharing"
)

// benchNode has GPUs that are cut into seven instances, each granted, with processes on each. What the driver's answers
// cost is not in it.
type benchNode struct {
	fakeNode
	processes int // of a GPU
}

func (b *benchNode) Read(_ context.Context, g Info, _ time.Time) Reading {
	d := attribution.Device{Memory: attribution.Told(80 * sharing.GiB), Listed: true}
	for i := range 7 {
		d.Instances = append(d.Instances, attribution.Instance{GI: i, Slot: attribution.Slot{Profile: "1g.10gb", Start: i}, Memory: attribution.Told(10 * sharing.GiB), Compute: 1.0 / 7})
	}
	for pid := range b.processes {
		d.Processes = append(d.Processes, attribution.Process{PID: g.Index<<16 + pid + 1, GI: pid % 7, Memory: attribution.Told(sharing.GiB)})
	}
	return Reading{Device: d, Fields: map[Field]float64{FieldPower: 300}}
}

// Members reads as many files as the kernel's list of one cgroup is.
func (b *benchNode) Members(dir string) ([]int, error) {
	if _, err := os.ReadFile("/sys/fs/cgroup/cgroup.procs"); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	var g, i int
	if _, err := fmt.Sscanf(dir, "/cg/%d-%d", &g, &i); err != nil {
		return nil, err
	}
	var pids []int
	for k := i; k < b.processes; k += 7 {
		pids = append(pids, g<<16+k+1)
	}
	return pids, nil
}

// BenchmarkCycle is one sample of 8 GPUs of 7 instances each.
func BenchmarkCycle(b *testing.B) {
	for _, processes := range []int{200, 1400} {
		b.Run(fmt.Sprintf("%d processes each", processes), func(b *testing.B) {
			n := &benchNode{processes: processes, fakeNode: fakeNode{grants: map[string]Grant{}}}
			for g := range 8 {
				uuid := sharing.GPUID(fmt.Sprint("GPU-", g))
				n.readings = append(n.readings, Reading{Info: Info{UUID: uuid, Index: g}})
				for i := range 7 {
					id := fmt.Sprintf("%d-%d", g, i)
					x := grant(id, uuid)
					x.Lease.Fragments[0].Slot = &attribution.Slot{Profile: "1g.10gb", Start: i}
					n.grants[id] = x
				}
			}
			h := NewHub()
			c := New(Options{Source: n, Grants: n, Cgroups: n, Hub: h, Log: slog.New(slog.DiscardHandler)})
			for b.Loop() {
				c.Cycle(b.Context())
			}
			if s := h.Latest().GPUs[7]; len(s.Use.Grants) != 7 || s.Use.Strangers.Processes != 0 {
				b.Errorf("%d grants, %d strangers", len(s.Use.Grants), s.Use.Strangers.Processes)
			}
		})
	}
}
