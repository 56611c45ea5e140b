// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"syscall"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// BenchmarkResidents makes the list of a GPU with seven instances and 28 processes on each. The time of the processors
// is what counts: kerf-monitor makes one for each GPU in each sample.
func BenchmarkResidents(b *testing.B) {
	var list []resident
	for i := range 7 * 28 {
		list = append(list, resident{pid: 5000 - 3*i, gi: uint32(7 + i%7), used: sharing.GiB, known: true})
	}
	cpu := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	b.ReportAllocs()
	before := cpu()
	for b.Loop() {
		if n := len(residents([][]resident{list, nil, nil})); n != len(list) {
			b.Fatal(n)
		}
	}
	b.ReportMetric(float64((cpu()-before).Nanoseconds())/1000/float64(b.N), "cpu-us/op")
}
