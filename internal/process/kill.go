// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sharing"
)

// ticksPerSecond is USER_HZ, which Linux has at 100 for programs on all machines that NVIDIA has drivers for.
const ticksPerSecond = 100

// Now is the time in clock ticks since boot, as the start times of processes are.
func Now() uint64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0 // impossible: the clock always exists
	}
	return uint64(t.Nano()) / (1e9 / ticksPerSecond) // #nosec G115 -- not negative
}

// StartOf is when the process that has this pid now started, in clock ticks since boot. Errors:
// sharing.ErrNotFound when there is none or it is a zombie, sharing.ErrUnavailable when /proc does not tell.
func StartOf(pid int) (uint64, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ESRCH):
		return 0, fmt.Errorf("start of process %d: %w", pid, sharing.ErrNotFound)
	case err != nil:
		return 0, fmt.Errorf("start of process %d: %w (%w)", pid, err, sharing.ErrUnavailable)
	}
	st, err := parseStat(data)
	if err != nil {
		return 0, fmt.Errorf("start of process %d: %w", pid, err)
	}
	if st.ended {
		return 0, fmt.Errorf("start of process %d: it has exited: %w", pid, sharing.ErrNotFound)
	}
	return st.start, nil
}

// Program is the file that the process which has this pid now executes, as the kernel has it; what the process
// calls itself plays no part. It is in the process's own mount namespace, and ends in " (deleted)" where it was
// removed. Errors: sharing.ErrNotFound when there is no such process, or it is one of the kernel's own or a
// zombie; sharing.ErrUnavailable when /proc does not tell.
func Program(pid int) (string, error) {
	path, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe")
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ESRCH):
		return "", fmt.Errorf("program of process %d: %w", pid, sharing.ErrNotFound)
	case err != nil:
		return "", fmt.Errorf("program of process %d: %w (%w)", pid, err, sharing.ErrUnavailable)
	}
	return path, nil
}

// Kill sends SIGKILL to the process that has this pid and started at that time, if check agrees. check is
// called while the process is held by its pidfd, and the process must live after it: what check read of the
// pid was then this process's, and not a successor's. An error of check is returned, and nothing is sent.
// Other errors: those of OpenAt, and sharing.ErrNotFound when it ended meanwhile.
func Kill(pid int, start uint64, check func() error) error {
	h, err := OpenAt(pid, start)
	if err != nil {
		return fmt.Errorf("kill: %w", err)
	}
	defer h.Close()
	return signalHeld(h, unix.SIGKILL, check)
}

// Terminate asks the process that has this pid to end, with SIGTERM, if check agrees; see Kill for when it is called.
// Errors are those of Kill.
func Terminate(pid int, check func() error) error { return signalChecked(pid, unix.SIGTERM, check) }

// KillNow is Kill for the process that has this pid now, whenever it started.
func KillNow(pid int, check func() error) error { return signalChecked(pid, unix.SIGKILL, check) }

func signalChecked(pid int, sig unix.Signal, check func() error) error {
	h, err := Open(pid)
	if err != nil {
		return fmt.Errorf("signal: %w", err)
	}
	defer h.Close()
	return signalHeld(h, sig, check)
}

func signalHeld(h *Handle, sig unix.Signal, check func() error) error {
	if err := check(); err != nil {
		return fmt.Errorf("signal process %d: %w", h.PID(), err)
	}
	if !h.Alive() {
		return fmt.Errorf("signal process %d: it has exited: %w", h.PID(), sharing.ErrNotFound)
	}
	return h.Signal(sig)
}
