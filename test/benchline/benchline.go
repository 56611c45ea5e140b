// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package benchline writes measured values in the form that tools/benchpages reads from the output of make bench.
package benchline

import (
	"fmt"
	"slices"
	"time"
)

// Line is one value in its own line: a key without blanks, such as start.activate.p50, a number, and a unit that
// tools/benchpages knows.
func Line(key string, value float64, unit string) string {
	return fmt.Sprintf("RESULT %s %.6g %s", key, value, unit)
}

// Durations are the lines KEY.p50 and KEY.p99 of durations, in milliseconds. There must be one duration at least.
func Durations(key string, all []time.Duration) string {
	sorted := slices.Sorted(slices.Values(all))
	ms := func(percent int) float64 {
		return float64(sorted[(len(sorted)-1)*percent/100].Nanoseconds()) / 1e6
	}
	return Line(key+".p50", ms(50), "ms") + "\n" + Line(key+".p99", ms(99), "ms")
}
