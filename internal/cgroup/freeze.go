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

// markPrefix names the extended attributes in which a group keeps marks. Only a process with CAP_SYS_ADMIN can read or
// change attributes of this class.
const markPrefix = "trusted.kerf."

// maxMark bounds a mark: an inode number and a path.
const maxMark = 32 + unix.PathMax

// SetMark keeps a short text with the group. It lasts as long as the group, and outlives the caller.
func (g Group) SetMark(name, text string) error {
	return g.mark("set", name, func(fd int) error {
		return unix.Fsetxattr(fd, markPrefix+name, []byte(text), 0)
	})
}

// Mark reads a mark; false if the group has none of that name.
func (g Group) Mark(name string) (text string, has bool, err error) {
	buf := make([]byte, maxMark)
	n := 0
	err = g.mark("read", name, func(fd int) error {
		n, err = unix.Fgetxattr(fd, markPrefix+name, buf)
		return err
	})
	if errors.Is(err, unix.ENODATA) {
		return "", false, nil
	}
	return string(buf[:max(n, 0)]), err == nil, err
}

// ClearMark removes a mark. It is no error if there is none.
func (g Group) ClearMark(name string) error {
	err := g.mark("remove", name, func(fd int) error { return unix.Fremovexattr(fd, markPrefix+name) })
	if errors.Is(err, unix.ENODATA) {
		return nil
	}
	return err
}

func (g Group) mark(verb, name string, do func(fd int) error) error {
	fd, err := g.open()
	if err != nil {
		return fmt.Errorf("%s mark %q of cgroup %q: %w", verb, name, g.Dir, err)
	}
	defer unix.Close(fd)
	if err := do(fd); err != nil {
		return fmt.Errorf("%s mark %q of cgroup %q: %w (%w)", verb, name, g.Dir, err, classify(err))
	}
	return nil
}

// Probe makes the group rel, which must not exist, uses it as an activation does, and removes it. Without an error the
// caller can make grants' groups. A mount that only looks right (most containers have a read-only one) fails here.
// Remedy says what to do about an error.
func (h Hierarchy) Probe(rel string) error {
	g, err := h.Create(rel)
	if err != nil {
		return err
	}
	return errors.Join(g.SetMark("probe", ""), g.Freeze(), g.Thaw(), g.Remove())
}

// Remedy is what to do about an error of Probe; empty if that is not known.
func (h Hierarchy) Remedy(err error) string {
	switch {
	case errors.Is(err, unix.EROFS):
		return fmt.Sprintf("make it writable: mount -o remount,bind,rw %s (needs CAP_SYS_ADMIN); for a container, "+
			"mount the host's /sys/fs/cgroup read-write", h.Mount)
	case errors.Is(err, sharing.ErrDenied):
		return "run as root with CAP_SYS_ADMIN"
	case errors.Is(err, sharing.ErrExhausted):
		return fmt.Sprintf("raise cgroup.max.descendants and cgroup.max.depth in %s and below", h.Mount)
	}
	return ""
}
