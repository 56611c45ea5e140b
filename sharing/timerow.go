// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"slices"
	"time"
)

// A driver does not count what each process uses of a GPU. It keeps samples, each of the one process that was on the
// engine at that time (open-gpu-kernel-modules 580.142, ctrl2080perf.h).
const (
	// TimeRing is how far back the driver's samples go, and TimeSample the time between two of them.
	TimeRing   = 10 * time.Second
	TimeSample = TimeRing / 72
)

// TimeRow is what the samples of some time say of one process on one GPU. Each field is the percent of that time for
// its kernels, its memory accesses, and its video encoding and decoding.
type TimeRow struct {
	PID int
	// At is when the last of these samples was taken.
	At                           time.Time
	SM, Memory, Encoder, Decoder int
}

// saysOf reports whether a row says anything of the time after since. Drivers return rows among good ones that do not:
// with an older time stamp, with a number that is no percentage, or of no process.
func (r TimeRow) saysOf(since time.Time) bool {
	for _, n := range []int{r.SM, r.Memory, r.Encoder, r.Decoder} {
		if n < 0 || n > 100 {
			return false
		}
	}
	return r.PID > 0 && r.At.After(since)
}

// TimeUse is what the samples of some time say of the processes on one GPU.
type TimeUse struct {
	// To is when the last of the samples was taken, and the moment from which the next ones are to be asked for. Zero:
	// the driver tells of no process.
	To time.Time
	// Rows are those of the processes, by pid. A process that is missing was in no sample, which does not mean that it
	// used nothing.
	Rows map[int]TimeRow
	// Doubt are the pids of rows that cannot be used, and of which there is no other one.
	Doubt []int
}

// Known reports whether the driver reports any process.
func (u TimeUse) Known() bool { return !u.To.IsZero() }

// UseOf is what rows say of the time after since. Those that say nothing of it are left out, each by itself. Of several
// rows of a process the last one counts.
func UseOf(rows []TimeRow, since time.Time) TimeUse {
	u := TimeUse{Rows: map[int]TimeRow{}}
	for _, r := range rows {
		if !r.saysOf(since) {
			continue
		}
		if before, in := u.Rows[r.PID]; !in || r.At.After(before.At) {
			u.Rows[r.PID] = r
		}
		if r.At.After(u.To) {
			u.To = r.At
		}
	}
	for _, r := range rows {
		if _, in := u.Rows[r.PID]; !in && r.PID > 0 && !slices.Contains(u.Doubt, r.PID) {
			u.Doubt = append(u.Doubt, r.PID)
		}
	}
	return u
}
