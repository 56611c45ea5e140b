// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
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

// Open takes hold of the process pid. Errors: sharing.ErrNotFound (no such process, or it has exited),
// sharing.ErrInvalid (not positive, or a thread that is not a process), sharing.ErrUnsupported (kernel
// without pidfd), sharing.ErrUnavailable (out of descriptors).
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

// Alive reports whether the process runs: false once it has exited, also while nobody has waited for it,
// and false after Close.
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
		return fmt.Errorf("signal process %d: %w: it is another user's, and this program has no CAP_KILL: give its container the capability KILL (%w)", h.pid, err, sharing.ErrDenied)
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
