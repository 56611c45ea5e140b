// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sharing"
)

// InitialPIDSpace is the number of the pid namespace of the machine itself, in which all processes are:
// PROC_PID_INIT_INO of the kernel's include/linux/proc_ns.h.
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

// MayMount reports whether the process has CAP_SYS_ADMIN in effect, without which it cannot have private mounts. Errors
// are those of InnermostPID.
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

// hostCgroupNS is the cgroup namespace of the machine's first process, as a process in the host's pid
// namespace sees it.
const hostCgroupNS = "/proc/1/ns/cgroup"

// JoinHostCgroups moves the calling thread into the cgroup namespace of the machine's first process. So paths in
// /proc/PID/cgroup and in mountinfo are the machine's own. A container's cgroup namespace shows them from its own place
// in the tree, and Kubernetes has no field to go without it. It reports whether the thread moved; the caller then locks
// it and executes its program again. Threads that are running already stay where they are.
//
// The error wraps ErrDenied without CAP_SYS_ADMIN and ErrUnsupported without the host's pid namespace.
func JoinHostCgroups() (moved bool, err error) {
	if os.Getpid() == 1 {
		return false, fmt.Errorf("this process is the first of its pid namespace, so the machine's processes cannot "+
			"be seen: run the pod with hostPID: true: %w", sharing.ErrUnsupported)
	}
	host, err := os.Open(hostCgroupNS)
	if err != nil {
		return false, fmt.Errorf("open the host's cgroup namespace: %w (%w)", err, sharing.ErrDenied)
	}
	defer host.Close()
	same, err := sameFile(hostCgroupNS, "/proc/self/ns/cgroup")
	if err != nil || same {
		return false, err
	}
	if err := unix.Setns(int(host.Fd()), unix.CLONE_NEWCGROUP); err != nil {
		if errors.Is(err, unix.EPERM) {
			err = fmt.Errorf("%w: give the container CAP_SYS_ADMIN (%w)", err, sharing.ErrDenied)
		}
		return false, fmt.Errorf("join the host's cgroup namespace: %w", err)
	}
	return true, nil
}

func sameFile(a, b string) (bool, error) {
	x, err := os.Stat(a)
	if err != nil {
		return false, fmt.Errorf("look at namespace: %w", err)
	}
	y, err := os.Stat(b)
	if err != nil {
		return false, fmt.Errorf("look at namespace: %w", err)
	}
	return os.SameFile(x, y), nil
}

// RestartInHostCgroups makes this program run in the host's cgroup namespace. If necessary, again starts the program
// again in its place; it returns only an error.
func RestartInHostCgroups(log *slog.Logger, again func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	moved, err := JoinHostCgroups()
	if err != nil || !moved {
		return err
	}
	log.Info("restarted in the host's cgroup namespace")
	return fmt.Errorf("start again in the host's cgroup namespace: %w", again())
}

// The files below /proc/PID of a process's own time namespace, and of the one that its children get:
// time_namespaces(7).
const (
	timeSpaceFile     = "ns/time"
	childrenSpaceFile = "ns/time_for_children"
	offsetsFile       = "timens_offsets"
)

// BootOffset is how far the boot clock of a process is ahead of this program's, because it is in another time
// namespace. The process sees all start times later by that much. Errors: sharing.ErrNotFound (no such process),
// sharing.ErrUnsupported (it has made a time namespace for its children, and the kernel tells the offsets of that one),
// sharing.ErrUnavailable.
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
		return 0, fmt.Errorf("its children get time namespace %s, and it has %s: %w", children, space,
			sharing.ErrUnsupported)
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
