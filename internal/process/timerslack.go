// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sharing"
)

// RelaxTimers lets the kernel wake the calling thread, and those that it makes, up to slack later than they ask for (Linux does so
// by 50 us), so that several are woken at once. It reports whether that was less before; the caller then locks the thread and
// executes its program again, since threads that are running already keep theirs, among them the Go runtime's that looks every 20
// us at the others for as long as one of them is in a system call or in C.
//
// The error wraps ErrUnsupported where the kernel does not let it.
func RelaxTimers(slack time.Duration) (relaxed bool, err error) {
	now, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		return false, fmt.Errorf("read the timers' slack: %w (%w)", err, sharing.ErrUnsupported)
	}
	if int64(now) >= slack.Nanoseconds() {
		return false, nil
	}
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack.Nanoseconds()), 0, 0, 0); err != nil { //nolint:gosec // more than what it is now, which is not negative
		return false, fmt.Errorf("set the timers' slack: %w (%w)", err, sharing.ErrUnsupported)
	}
	// Some that are no Linux, or keep others from it, say that they do.
	if now, err = unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); err != nil || int64(now) != slack.Nanoseconds() {
		return false, fmt.Errorf("set the timers' slack to %s: it is %d ns: %w", slack, now, sharing.ErrUnsupported)
	}
	return true, nil
}
