// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sharing"
)

// The files below /proc/PID of a process's own time namespace, and of the one that its children get: time_namespaces(7).
const (
	timeSpaceFile     = "ns/time"
	childrenSpaceFile = "ns/time_for_children"
	offsetsFile       = "timens_offsets"
)

// BootOffset is how far the boot clock of a process is ahead of this program's, because it is in another time namespace. The
// process sees all start times later by that much. Errors: sharing.ErrNotFound (no such process), sharing.ErrUnsupported (it
// has made a time namespace for its children, and the kernel tells the offsets of that one), sharing.ErrUnavailable.
func BootOffset(pid int) (time.Duration, error) {
	offset, err := bootOffset("/proc/self", "/proc/"+strconv.Itoa(pid))
	if err != nil {
		return 0, fmt.Errorf("boot clock of process %d: %w", pid, err)
	}
	return offset, nil
}

func bootOffset(own, other string) (time.Duration, error) {
	mine, err := os.Readlink(filepath.Join(own, timeSpaceFile))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // Linux 5.5 and older have one clock
	}
	if err != nil {
		return 0, fmt.Errorf("read own time namespace: %w (%w)", err, sharing.ErrUnavailable)
	}
	theirs, err := os.Readlink(filepath.Join(other, timeSpaceFile))
	if err != nil {
		return 0, ofProcess(err)
	}
	if theirs == mine {
		return 0, nil
	}
	here, err := offsetOf(own)
	if err != nil {
		return 0, err
	}
	there, err := offsetOf(other)
	return there - here, err
}

// offsetOf is the offset of a process's boot clock from the machine's.
func offsetOf(dir string) (time.Duration, error) {
	space, err := os.Readlink(filepath.Join(dir, timeSpaceFile))
	if err != nil {
		return 0, ofProcess(err)
	}
	children, err := os.Readlink(filepath.Join(dir, childrenSpaceFile))
	if err != nil {
		return 0, ofProcess(err)
	}
	if children != space {
		return 0, fmt.Errorf("its children get time namespace %s, and it has %s: %w", children, space, sharing.ErrUnsupported)
	}
	text, err := os.ReadFile(filepath.Join(dir, offsetsFile))
	if err != nil {
		return 0, ofProcess(err)
	}
	return parseBootOffset(string(text))
}

func ofProcess(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("%w (%w)", err, sharing.ErrNotFound)
	}
	return fmt.Errorf("%w (%w)", err, sharing.ErrUnavailable)
}

// parseBootOffset reads the line "boottime SECONDS NANOSECONDS".
func parseBootOffset(text string) (time.Duration, error) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) != 3 || f[0] != "boottime" {
			continue
		}
		seconds, err := strconv.ParseInt(f[1], 10, 34) // 34 bits are more than the kernel takes, and no overflow
		nanos, err2 := strconv.ParseInt(f[2], 10, 32)
		if err != nil || err2 != nil || nanos < 0 || nanos >= int64(time.Second) {
			return 0, fmt.Errorf("parse "+offsetsFile+": %q: %w", line, sharing.ErrUnavailable)
		}
		return time.Duration(seconds)*time.Second + time.Duration(nanos), nil
	}
	return 0, fmt.Errorf("parse "+offsetsFile+": no boottime: %w", sharing.ErrUnavailable)
}
