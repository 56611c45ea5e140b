// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package benchline

import (
	"testing"
	"time"
)

func TestLines(t *testing.T) {
	if got, want := Line("a.b", 1.5, "ms"), "RESULT a.b 1.5 ms"; got != want {
		t.Errorf("Line: %q, want %q", got, want)
	}
	got := Durations("d", []time.Duration{3 * time.Millisecond, time.Millisecond, 2 * time.Millisecond})
	if want := "RESULT d.p50 2 ms\nRESULT d.p99 2 ms"; got != want {
		t.Errorf("Durations: %q, want %q", got, want)
	}
}
