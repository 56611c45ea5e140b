// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package process holds on to one process, so that nothing is ever done to another one that was given the
// same pid later.
//
// A Handle is a pidfd, which the kernel binds to the process itself, and the process's start time. The start time, the
// pid and BootID can be written down and compared after a restart. PeerOf reports the process at the other end of a
// Unix socket, from the kernel and never from what the peer says. OpenDevices reports which device files a process has
// open.
//
// Not promised: a process that executes another program stays the same process (same pid, same start time). A socket
// that was handed on to another process still names the one that connected. Zombies count as dead.
package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sharing"
)

// Handle is one living or dead process. It is safe for concurrent use. Its owner closes it.
type Handle struct {
	pid   int
	start uint64

	mu sync.Mutex
	fd int // -1 once closed
}

// Open opens a handle of the process pid. Errors: sharing.ErrNotFound (no such process, or it has exited),
// sharing.ErrInvalid (not positive, or a thread that is not a process). Also sharing.ErrUnsupported (kernel without
// pidfd) and sharing.ErrUnavailable (out of descriptors).
func Open(pid int) (*Handle, error) {
	if pid <= 0 {
		return nil, fmt.Errorf("open process %d: %w", pid, sharing.ErrInvalid)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("open process %d: %w (%w)", pid, err, classify(err))
	}
	return adopt(pid, fd)
}

// OpenAt is Open for a process that was written down: it is sharing.ErrStale when pid now belongs to a
// process with another start time. Compare BootID first; start times of two boots mean nothing together.
func OpenAt(pid int, start uint64) (*Handle, error) {
	h, err := Open(pid)
	if err != nil {
		return nil, err
	}
	if h.start != start {
		h.Close()
		return nil, fmt.Errorf("open process %d: started at %d, not at %d: %w", pid, h.start, start, sharing.ErrStale)
	}
	return h, nil
}

// adopt makes a Handle of a pidfd and takes ownership of it, also on error. The start time is read between
// two moments at which the pidfd's process lived, so that it is that process's and not a successor's.
func adopt(pid, fd int) (*Handle, error) {
	unix.CloseOnExec(fd)
	h := &Handle{pid: pid, fd: fd}
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	alive := h.Alive()
	switch {
	case !alive, errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ESRCH):
		h.Close()
		return nil, fmt.Errorf("open process %d: it has exited: %w", pid, sharing.ErrNotFound)
	case err != nil:
		h.Close()
		return nil, fmt.Errorf("open process %d: %w (%w)", pid, err, sharing.ErrUnavailable)
	}
	st, err := parseStat(data)
	if err == nil && st.pid != pid {
		err = fmt.Errorf("stat is of process %d: %w", st.pid, sharing.ErrStale)
	}
	if err != nil {
		h.Close()
		return nil, fmt.Errorf("open process %d: %w", pid, err)
	}
	h.start = st.start
	return h, nil
}

// PID is the process's id in the caller's pid namespace. It may belong to another process once Alive is
// false.
func (h *Handle) PID() int { return h.pid }

// StartTime is when the process started, in clock ticks since boot (field 22 of /proc/PID/stat).
func (h *Handle) StartTime() uint64 { return h.start }

// Alive reports whether the process runs: false once it has exited, also before a wait for it, and false after Close.
func (h *Handle) Alive() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fd < 0 {
		return false
	}
	// A pidfd becomes readable when the process ends; a zero timeout never blocks.
	fds := []unix.PollFd{{Fd: int32(h.fd), Events: unix.POLLIN}} //nolint:gosec // a descriptor is small
	for {
		n, err := unix.Poll(fds, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return err == nil && n == 0
	}
}

// Signal sends sig to this process and to no other that may have its pid by now. It is sharing.ErrNotFound
// when the process has exited, sharing.ErrDenied when the caller may not.
func (h *Handle) Signal(sig unix.Signal) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fd < 0 {
		return fmt.Errorf("signal process %d: handle is closed: %w", h.pid, sharing.ErrInvalid)
	}
	err := unix.PidfdSendSignal(h.fd, sig, nil, 0)
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("signal process %d: %w: it is another user's, and this program has no CAP_KILL: give its "+
			"container the capability KILL (%w)", h.pid, err, sharing.ErrDenied)
	}
	if err != nil {
		return fmt.Errorf("signal process %d: %w (%w)", h.pid, err, classify(err))
	}
	return nil
}

// Close lets go of the process; it does not touch it. Closing twice is harmless.
func (h *Handle) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fd >= 0 {
		_ = unix.Close(h.fd) // nothing to flush, and the descriptor is gone either way
		h.fd = -1
	}
}

func classify(err error) error {
	switch {
	case errors.Is(err, unix.ESRCH):
		return sharing.ErrNotFound
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
		// PidfdOpen says so of a thread id: EINVAL on older kernels, ENOENT on newer ones.
		return sharing.ErrInvalid
	case errors.Is(err, unix.ENOSYS):
		return sharing.ErrUnsupported
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return sharing.ErrDenied
	}
	return sharing.ErrUnavailable
}

// stat is what Kerf needs of /proc/PID/stat.
type stat struct {
	pid   int
	start uint64 // clock ticks since boot
	ended bool   // a zombie without threads that run
}

// The places of fields of /proc/PID/stat (proc_pid_stat(5)) among those after the command name, which is field 2.
const (
	stateField   = 0 // field 3
	threadsField = 20 - 3
	startField   = 22 - 3
)

// parseStat reads /proc/PID/stat. The command name is the process's own choice and may hold spaces,
// parentheses and newlines, so the fields are counted from after the last ')'.
func parseStat(data []byte) (stat, error) {
	open, end := bytes.IndexByte(data, '('), bytes.LastIndexByte(data, ')')
	if open < 1 || end < open {
		return stat{}, badStat("no command name")
	}
	pid, err := strconv.ParseInt(string(bytes.TrimSpace(data[:open])), 10, 32)
	if err != nil || pid <= 0 {
		return stat{}, badStat("no pid")
	}
	fields := bytes.Fields(data[end+1:])
	if len(fields) <= startField {
		return stat{}, badStat("too few fields")
	}
	start, err := strconv.ParseUint(string(fields[startField]), 10, 64)
	if err != nil {
		return stat{}, badStat("no start time")
	}
	// The first thread of a process may end before the others: then the state is Z, and there are other threads.
	state, threads := string(fields[stateField]), string(fields[threadsField])
	ended := (state == "Z" || state == "X") && (threads == "0" || threads == "1")
	return stat{pid: int(pid), start: start, ended: ended}, nil
}

func badStat(why string) error {
	return fmt.Errorf("parse process stat: %s: %w", why, sharing.ErrInvalid)
}

const bootIDPath = "/proc/sys/kernel/random/boot_id"

// BootID is the kernel's random id of this boot, a UUID in lower case. What was written down under another
// boot id (pids, start times, cgroup inodes) is stale. It is sharing.ErrUnavailable when /proc does not
// tell.
func BootID() (string, error) {
	data, err := os.ReadFile(bootIDPath)
	if err != nil {
		return "", fmt.Errorf("read boot id: %w (%w)", err, sharing.ErrUnavailable)
	}
	return parseBootID(string(data))
}

func parseBootID(s string) (string, error) {
	id := strings.TrimSuffix(s, "\n")
	ok := len(id) == 36
	for i := 0; ok && i < len(id); i++ {
		if i == 8 || i == 13 || i == 18 || i == 23 {
			ok = id[i] == '-'
		} else {
			ok = strings.IndexByte("0123456789abcdef", id[i]) >= 0
		}
	}
	if !ok {
		return "", fmt.Errorf("read boot id: %q is not a UUID: %w", s, sharing.ErrUnavailable)
	}
	return id, nil
}
