// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sharing"
)

const freezeFile = "cgroup.freeze"

// Freeze asks the kernel to stop every process in the group and beneath it, and every process that enters later. It
// does not wait for that: see WaitFrozen. SIGKILL still ends a frozen process; any other signal waits for Thaw.
func (g Group) Freeze() error { return g.write(freezeFile, "1") }

// Thaw lets the group's processes continue. A group that is not frozen stays as it is.
func (g Group) Thaw() error { return g.write(freezeFile, "0") }

// Freezing reports whether Freeze is in effect, also while a process has not stopped yet.
func (g Group) Freezing() (bool, error) {
	fd, err := g.open()
	if err != nil {
		return false, fmt.Errorf("read %s of cgroup %q: %w", freezeFile, g.Dir, err)
	}
	defer unix.Close(fd)
	data, err := readAt(fd, freezeFile)
	if err != nil {
		return false, fmt.Errorf("read %s of cgroup %q: %w (%w)", freezeFile, g.Dir, err, classify(err))
	}
	return strings.TrimSpace(string(data)) == "1", nil
}

// WaitFrozen waits until every thread in the group has stopped. A thread that is stopped by a signal or a debugger, or
// waits for its vfork child, counts as stopped. A thread that waits in the kernel without interruption (for example
// for a file server) does not stop. If ctx ends first, the error wraps sharing.ErrUnavailable.
func (g Group) WaitFrozen(ctx context.Context) error {
	fail := func(err error) error { return fmt.Errorf("wait for cgroup %q to freeze: %w", g.Dir, err) }
	dir, err := g.open()
	if err != nil {
		return fail(err)
	}
	defer unix.Close(dir)
	events, err := openAt(dir, eventsFile, unix.O_RDONLY)
	if err != nil {
		return fail(fmt.Errorf("%w (%w)", err, classify(err)))
	}
	defer events.Close()
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		frozen, err := readFrozen(int(events.Fd()))
		if err != nil {
			return fail(err)
		}
		if frozen {
			return nil
		}
		if ctx.Err() != nil {
			return fail(fmt.Errorf("a thread has not stopped: %w (%w)", context.Cause(ctx), sharing.ErrUnavailable))
		}
		if err := awaitEvent(int(events.Fd()), pause); err != nil {
			return fail(err)
		}
	}
}

// The kernel reports changes of one file at most once in 10 ms, and most processes stop within microseconds. So the
// file is also read without a report, at growing intervals.
const (
	firstPause = 50 * time.Microsecond
	lastPause  = 10 * time.Millisecond
)

// awaitEvent returns when the kernel reports a change of the file, or after the pause.
func awaitEvent(fd int, pause time.Duration) error {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLPRI}} // #nosec G115 -- a descriptor is small
	timeout := unix.NsecToTimespec(int64(pause))
	if _, err := unix.Ppoll(fds, &timeout, nil); err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("poll %s: %w (%w)", eventsFile, err, classify(err))
	}
	return nil
}

// readFrozen reads the "frozen" line of an open cgroup.events.
func readFrozen(fd int) (bool, error) {
	var buf [512]byte
	n, err := unix.Pread(fd, buf[:], 0)
	if errors.Is(err, unix.EINTR) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read %s: %w (%w)", eventsFile, err, classify(err))
	}
	return parseFrozen(buf[:n])
}

func parseFrozen(data []byte) (bool, error) {
	for line := range bytes.Lines(data) {
		switch strings.TrimSuffix(string(line), "\n") {
		case "frozen 0":
			return false, nil
		case "frozen 1":
			return true, nil
		}
	}
	return false, fmt.Errorf("parse %s: no line \"frozen\" (needs Linux 5.2): %w", eventsFile, sharing.ErrUnsupported)
}

// write sets one file of the group.
func (g Group) write(name, value string) error {
	fd, err := g.open()
	if err != nil {
		return fmt.Errorf("write %s of cgroup %q: %w", name, g.Dir, err)
	}
	defer unix.Close(fd)
	if err := writeAt(fd, name, value); err != nil {
		return fmt.Errorf("write %s of cgroup %q: %w", name, g.Dir, err)
	}
	return nil
}
