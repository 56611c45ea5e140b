// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sharing"
)

// Deaths knows of any number of processes which of them have ended, for one system call whenever it is asked. So what
// was found out of a process stays true of its pid for as long as it is watched. It costs a descriptor for each process.
// It is not safe for concurrent use. Its owner closes it.
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
// sharing.ErrInvalid (no pid of a process), sharing.ErrUnsupported (kernel without pidfd), sharing.ErrUnavailable (out of
// descriptors).
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
