// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package reactive

import (
	"testing"
	"time"
)

func TestSchedule(t *testing.T) {
	start := time.Unix(100, 0)
	for name, c := range map[string]struct {
		every, after time.Duration
		want         int
	}{
		"in time":            {100 * time.Millisecond, 100 * time.Millisecond, 0},
		"early":              {100 * time.Millisecond, 10 * time.Millisecond, 0},
		"late":               {100 * time.Millisecond, 199 * time.Millisecond, 0},
		"one missed":         {100 * time.Millisecond, 200 * time.Millisecond, 1},
		"three missed":       {20 * time.Millisecond, 99 * time.Millisecond, 3},
		"nothing is planned": {0, time.Hour, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var s Schedule
			s.Plan(start, c.every)
			if got := s.Missed(start.Add(c.after)); got != c.want {
				t.Errorf("%d, want %d", got, c.want)
			}
		})
	}
	if got := (&Schedule{}).Missed(start); got != 0 {
		t.Errorf("%d before anything was planned", got)
	}
}
