// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/internal/gpusim/model"
)

// ends knows which of any number of peers have died or closed their connection, for one system call whenever it is
// asked: a driver's answer must not take longer because there are many processes.
type ends struct{ epoll int }

func newEnds() (*ends, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("watch for ends of processes: %w", err)
	}
	return &ends{fd}, nil
}

// watch tells of a peer from now on, until the peer is closed.
func (e *ends) watch(id model.ClientID, p *peer) error {
	conn, err := p.conn.SyscallConn()
	if err != nil {
		return fmt.Errorf("watch process %d: %w", p.pid, err)
	}
	proc, err := p.pidfd.SyscallConn()
	if err != nil {
		return fmt.Errorf("watch process %d: %w", p.pid, err)
	}
	var refused error
	add := func(events uint32) func(fd uintptr) {
		ev := unix.EpollEvent{Events: events, Fd: int32(uint32(id)), Pad: int32(uint32(id >> 32))} // #nosec G115 -- both halves of the number
		return func(fd uintptr) {
			refused = errors.Join(refused, unix.EpollCtl(e.epoll, unix.EPOLL_CTL_ADD, int(fd), &ev)) // #nosec G115 -- a descriptor
		}
	}
	err = errors.Join(conn.Control(add(unix.EPOLLRDHUP)), proc.Control(add(unix.EPOLLIN)))
	if err = errors.Join(err, refused); err != nil {
		return fmt.Errorf("watch process %d: %w", p.pid, err)
	}
	return nil
}

// forget tells no more of the peer's process, but of its connection alone.
func (e *ends) forget(p *peer) error {
	proc, err := p.pidfd.SyscallConn()
	if err != nil {
		return fmt.Errorf("watch process %d no more: %w", p.pid, err)
	}
	var refused error
	err = proc.Control(func(fd uintptr) {
		refused = unix.EpollCtl(e.epoll, unix.EPOLL_CTL_DEL, int(fd), nil) // #nosec G115 -- a descriptor
	})
	if err = errors.Join(err, refused); err != nil {
		return fmt.Errorf("watch process %d no more: %w", p.pid, err)
	}
	return nil
}

// come are the peers that have ended; one that was not closed meanwhile is told of again.
func (e *ends) come() []model.ClientID {
	var out []model.ClientID
	events := make([]unix.EpollEvent, 64)
	for {
		n, err := unix.EpollWait(e.epoll, events, 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err == nil && n == len(events): // there may be more
			events = make([]unix.EpollEvent, 2*len(events))
			continue
		}
		for _, ev := range events[:max(n, 0)] {
			out = append(out, model.ClientID(uint32(ev.Fd))|model.ClientID(uint32(ev.Pad))<<32) // #nosec G115 -- both halves
		}
		return out
	}
}

func (e *ends) close() error {
	if err := unix.Close(e.epoll); err != nil {
		return fmt.Errorf("end the watch for ends of processes: %w", err)
	}
	return nil
}
