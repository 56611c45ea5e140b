// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"

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

// Program is the file that the process which has this pid now executes, as the kernel has it. What the process calls
// itself plays no part. It is in the process's own mount namespace, and ends in " (deleted)" if it was removed. The
// error is sharing.ErrNotFound if there is no such process, or it is one of the kernel's own or a zombie. It is
// sharing.ErrUnavailable if /proc does not report it.
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

// Kill sends SIGKILL to the process that has this pid and started at that time, if check agrees. It calls check while
// it holds the process's pidfd, and the process must live after it. So what check read of the pid was this process's,
// and not a successor's. An error of check is returned, and nothing is sent. Other errors: those of OpenAt, and
// sharing.ErrNotFound when it ended meanwhile.
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

// Deaths knows of any number of processes which of them have ended, for one system call whenever it is asked. So what
// was found out of a process stays true of its pid for as long as it is watched. It costs a descriptor for each
// process. It is not safe for concurrent use. Its owner closes it.
type Deaths struct {
	epoll int
	fds   map[int]int // by pid
}

// NewDeaths watches no process yet. The error is sharing.ErrUnavailable.
func NewDeaths() (*Deaths, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("watch for ends of processes: %w (%w)", err, sharing.ErrUnavailable)
	}
	return &Deaths{epoll: fd, fds: map[int]int{}}, nil
}

// Watch watches a process; one that is watched already stays so. Errors: sharing.ErrNotFound (no such process),
// sharing.ErrInvalid (no pid of a process), sharing.ErrUnsupported (kernel without pidfd), sharing.ErrUnavailable (out
// of descriptors).
func (d *Deaths) Watch(pid int) error {
	if _, ok := d.fds[pid]; ok {
		return nil
	}
	if pid <= 0 {
		return fmt.Errorf("watch process %d: %w", pid, sharing.ErrInvalid)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("watch process %d: %w (%w)", pid, err, classify(err))
	}
	unix.CloseOnExec(fd)
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(pid)} //nolint:gosec // a pid is an int32
	if err := unix.EpollCtl(d.epoll, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		return fmt.Errorf("watch process %d: %w (%w)", pid, errors.Join(err, unix.Close(fd)), sharing.ErrUnavailable)
	}
	d.fds[pid] = fd
	return nil
}

// Forget ends the watch of a process.
func (d *Deaths) Forget(pid int) {
	if fd, ok := d.fds[pid]; ok {
		_ = unix.Close(fd) // the last descriptor of its kind takes the watch with it
		delete(d.fds, pid)
	}
}

// Ended returns the watched processes that have ended, and forgets them.
func (d *Deaths) Ended() []int {
	var out []int
	var events [64]unix.EpollEvent
	for {
		n, err := unix.EpollWait(d.epoll, events[:], 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			return out
		}
		for _, ev := range events[:n] {
			d.Forget(int(ev.Fd))
			out = append(out, int(ev.Fd))
		}
	}
}

// Len is how many processes are watched.
func (d *Deaths) Len() int { return len(d.fds) }

// Close ends all watches.
func (d *Deaths) Close() error {
	for pid := range d.fds {
		d.Forget(pid)
	}
	if err := unix.Close(d.epoll); err != nil {
		return fmt.Errorf("end the watch for ends of processes: %w (%w)", err, sharing.ErrUnavailable)
	}
	return nil
}

// RelaxTimers lets the kernel wake the calling thread, and those that it makes, up to slack later than they ask for.
// Linux does so by 50 us. So the kernel can wake several at once. It reports whether that was less before; the caller
// then locks the thread and executes its program again. Threads that are running already keep theirs. One of them is
// the Go runtime's. It checks the others every 20 us while one of them is in a system call or in C.
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
	if now, err = unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); err != nil ||
		int64(now) != slack.Nanoseconds() {
		return false, fmt.Errorf("set the timers' slack to %s: it is %d ns: %w", slack, now, sharing.ErrUnsupported)
	}
	return true, nil
}
