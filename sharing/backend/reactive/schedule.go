// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package reactive

import "time"

// Schedule counts the samples that were not taken because the one before them came too late. The zero value has no
// sample planned.
type Schedule struct {
	due   time.Time
	every time.Duration
}

// Plan notes that the next sample is due d after now, and then every d. 0 means that none is due.
func (s *Schedule) Plan(now time.Time, d time.Duration) { s.due, s.every = now.Add(d), d }

// Missed returns how many samples were missed if one is taken now: those that were due between the planned one and now.
func (s *Schedule) Missed(now time.Time) int {
	if s.every <= 0 || !now.After(s.due) {
		return 0
	}
	return int(now.Sub(s.due) / s.every)
}
