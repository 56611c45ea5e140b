// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package change_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing/config/change"
)

// drive lets time pass in steps until the end, and returns what was due, "good/bad" by their hashes.
func drive(s *change.Settling, changes map[time.Duration]change.Candidate, end time.Duration) (due []string,
	at []time.Duration) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	hash := func(c *change.Candidate) string {
		if c == nil {
			return "-"
		}
		return c.Hash
	}
	for t := time.Duration(0); t <= end; t += 50 * time.Millisecond {
		if c, ok := changes[t]; ok {
			s.Add(start.Add(t), c)
		}
		good, bad, wait := s.Due(start.Add(t))
		if good != nil || bad != nil {
			due, at = append(due, hash(good)+"/"+hash(bad)), append(at, t)
			if wait != 0 {
				due = append(due, "and a wait")
			}
		}
	}
	return due, at
}

func TestSettling(t *testing.T) {
	t.Parallel()
	wrong := errors.New("wrong")
	many := func(last error, every time.Duration) map[time.Duration]change.Candidate {
		out := map[time.Duration]change.Candidate{}
		for i := range 100 {
			c := change.Candidate{Hash: fmt.Sprint(i)}
			if i%2 == 1 {
				c.Err = wrong
			}
			if i == 99 {
				c.Err = last
			}
			out[time.Duration(i)*every] = c
		}
		return out
	}
	for name, tt := range map[string]struct {
		changes map[time.Duration]change.Candidate
		want    string
		at      time.Duration
	}{
		"one":                {map[time.Duration]change.Candidate{0: {Hash: "a"}}, "[a/-]", time.Second},
		"the same as before": {map[time.Duration]change.Candidate{0: {Hash: "known"}}, "[]", 0},
		"one that is wrong": {map[time.Duration]change.Candidate{0: {Hash: "a", Err: wrong}}, "[-/a]",
			time.Second},
		"wrong, then right": {map[time.Duration]change.Candidate{0: {Hash: "a", Err: wrong},
			500 * time.Millisecond: {Hash: "b"}}, "[b/-]", 1500 * time.Millisecond},
		"100 in 10 s, the last one right":   {many(nil, 100*time.Millisecond), "[99/-]", 10900 * time.Millisecond},
		"100 in 10 s, the last one wrong":   {many(wrong, 100*time.Millisecond), "[98/99]", 10900 * time.Millisecond},
		"changes that never come to an end": {many(nil, 400*time.Millisecond), "[74/75 99/-]", 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := change.Settling{StableFor: time.Second, MaxWait: 30 * time.Second}
			s.Seen("known")
			due, at := drive(&s, tt.changes, time.Minute)
			if fmt.Sprint(due) != tt.want || len(at) > 0 && at[0] != tt.at {
				t.Errorf("due %v at %v, want %s at %v", due, at, tt.want, tt.at)
			}
		})
	}
}
