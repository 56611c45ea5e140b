// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Each row that says nothing is left out by itself, and the rest counts.
func TestUseOf(t *testing.T) {
	since := time.Unix(1000, 0)
	at := since.Add
	good := TimeRow{PID: 7, At: at(time.Second), SM: 40, Memory: 20}
	also := TimeRow{PID: 8, At: at(300 * time.Millisecond), SM: 100, Encoder: 100}
	rows := []TimeRow{
		good,
		{PID: 9, At: at(0), SM: 30},            // sampled last when it was asked for the time after
		{PID: 9, At: at(-time.Hour), SM: 30},   // stale
		{PID: 9, SM: 30},                       // without a time stamp
		{PID: 10, At: at(1), SM: 101},          // garbage
		{PID: 9, At: at(1), SM: math.MaxInt32}, // garbage
		{PID: 9, At: at(1), SM: 3, Memory: -1}, // garbage
		{PID: 9, At: at(1), Decoder: 1000},     // garbage
		{PID: 0, At: at(1), SM: 5},             // of no process
		{PID: -3, At: at(1), SM: 5},            // of no process
		{PID: 8, At: at(1), SM: 5},             // there is a later one
		also,
		{PID: 8, At: at(-1), SM: 5},
	}
	want := TimeUse{To: at(time.Second), Rows: map[int]TimeRow{7: good, 8: also}, Doubt: []int{9, 10}}
	if d := cmp.Diff(want, UseOf(rows, since)); d != "" || !UseOf(rows, since).Known() {
		t.Errorf("(-want +got):\n%s", d)
	}
	if UseOf(nil, since).Known() || UseOf(rows[1:10], since).Known() {
		t.Error("without a row something is reported")
	}
}
