// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestRelaxTimers is on a separate thread, which ends with it.
func TestRelaxTimers(t *testing.T) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		for _, s := range []struct {
			slack   time.Duration
			relaxed bool
			want    int
		}{{2 * time.Millisecond, true, 2_000_000}, {2 * time.Millisecond, false, 2_000_000},
			{time.Millisecond, false, 2_000_000}, {3 * time.Millisecond, true, 3_000_000}} {
			relaxed, err := RelaxTimers(s.slack)
			got, err2 := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
			if relaxed != s.relaxed || err != nil || err2 != nil || got != s.want {
				t.Errorf("to %s: %v, %v; it is %d, %v", s.slack, relaxed, err, got, err2)
			}
		}
	}()
	<-done
}
