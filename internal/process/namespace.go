// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sharing"
)

// InitialPIDSpace is the number of the pid namespace of the machine itself, in which all processes are: PROC_PID_INIT_INO of
// the kernel's include/linux/proc_ns.h.
const InitialPIDSpace = 0xEFFFFFFC

// InnermostPID is the pid that the process knows itself by: the one in the innermost pid namespace that it is in.
// Errors: sharing.ErrNotFound when there is no such process, sharing.ErrUnavailable when /proc does not tell.
func InnermostPID(pid int) (int, error) {
	text, err := status(pid)
	if err != nil {
		return 0, err
	}
	inner, err := parseInnermost(text)
	if err != nil {
		return 0, fmt.Errorf("status of process %d: %w", pid, err)
	}
	return inner, nil
}

// PIDSpace is the number of the pid namespace that the process is in, as /proc/PID/ns/pid has it. Errors are those of
// InnermostPID.
func PIDSpace(pid int) (uint64, error) {
	text, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/pid")
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return 0, fmt.Errorf("pid namespace of process %d: %w", pid, sharing.ErrNotFound)
	}
	number, found := strings.CutPrefix(text, "pid:[")
	n, parsed := strconv.ParseUint(strings.TrimSuffix(number, "]"), 10, 64)
	if err != nil || !found || parsed != nil {
		return 0, fmt.Errorf("pid namespace of process %d: %w", pid, errors.Join(sharing.ErrUnavailable, err, parsed))
	}
	return n, nil
}

// MayMount reports whether the process has CAP_SYS_ADMIN in effect, without which it cannot have mounts of its own.
// Errors are those of InnermostPID.
func MayMount(pid int) (bool, error) { return capable(pid, unix.CAP_SYS_ADMIN) }

// MayOverride reports whether the process has CAP_DAC_OVERRIDE in effect, without which it cannot enter the private
// folders of other users. Errors are those of InnermostPID.
func MayOverride(pid int) (bool, error) { return capable(pid, unix.CAP_DAC_OVERRIDE) }

func capable(pid, capability int) (bool, error) {
	text, err := status(pid)
	if err != nil {
		return false, err
	}
	value, ok := field(text, "CapEff:")
	mask, err := strconv.ParseUint(value, 16, 64)
	if !ok || err != nil {
		return false, fmt.Errorf("status of process %d: no capabilities: %w", pid, sharing.ErrUnavailable)
	}
	return mask&(1<<capability) != 0, nil
}

func status(pid int) (string, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ESRCH):
		return "", fmt.Errorf("status of process %d: %w", pid, sharing.ErrNotFound)
	case err != nil:
		return "", fmt.Errorf("status of process %d: %w (%w)", pid, err, sharing.ErrUnavailable)
	}
	return string(data), nil
}

// parseInnermost reads the last number of the line NSpid, of /proc/PID/status. A kernel without the line has one
// pid namespace alone.
func parseInnermost(text string) (int, error) {
	value, ok := field(text, "NSpid:")
	if !ok {
		value, ok = field(text, "Pid:")
	}
	words := strings.Fields(value)
	if !ok || len(words) == 0 {
		return 0, fmt.Errorf("no pid: %w", sharing.ErrUnavailable)
	}
	pid, err := strconv.ParseInt(words[len(words)-1], 10, 32)
	if err != nil || pid <= 0 {
		return 0, fmt.Errorf("pid %q: %w", words[len(words)-1], sharing.ErrUnavailable)
	}
	return int(pid), nil
}

// field is the value of a line of /proc/PID/status. The name of the process, in its first line, has no newlines: the
// kernel writes them as \n.
func field(text, name string) (string, bool) {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name); ok {
			return strings.TrimSpace(value), true
		}
	}
	return "", false
}
