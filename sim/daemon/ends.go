// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sim/model"
)

// ends knows which of any number of peers have closed their connection for good, and which of their processes have
// ended, for one system call whenever it is asked: a driver's answer must not take longer because there are many
// processes.
type ends struct{ epoll int }

// processEnd marks an event of a process; others are of connections. No client has so high a number.
const processEnd = 1 << 63

func newEnds() (*ends, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("watch for ends of processes: %w", err)
	}
	return &ends{fd}, nil
}

// watch tells of a peer from now on, until the peer is closed: once of its process.
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
	add := func(events uint32, what uint64) func(fd uintptr) {
		// #nosec G115 -- both halves of the number
		ev := unix.EpollEvent{Events: events, Fd: int32(uint32(what)), Pad: int32(uint32(what >> 32))}
		return func(fd uintptr) {
			// #nosec G115 -- a descriptor
			refused = errors.Join(refused, unix.EpollCtl(e.epoll, unix.EPOLL_CTL_ADD, int(fd), &ev))
		}
	}
	err = errors.Join(conn.Control(add(unix.EPOLLRDHUP, uint64(id))),
		proc.Control(add(unix.EPOLLIN|unix.EPOLLONESHOT, uint64(id)|processEnd)))
	if err = errors.Join(err, refused); err != nil {
		return fmt.Errorf("watch process %d: %w", p.pid, err)
	}
	return nil
}

// come returns the closed peers, each again until it is dealt with, and those whose process has ended since the last
// call.
func (e *ends) come() (closed, ended []model.ClientID) {
	events := make([]unix.EpollEvent, 1024)
	for {
		n, err := unix.EpollWait(e.epoll, events, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		for _, ev := range events[:max(n, 0)] {
			what := uint64(uint32(ev.Fd)) | uint64(uint32(ev.Pad))<<32 // #nosec G115 -- both halves
			if what&processEnd != 0 {
				ended = append(ended, model.ClientID(what&^processEnd))
				continue
			}
			closed = append(closed, model.ClientID(what))
		}
		if err != nil || n < len(events) {
			return closed, ended
		}
		events = make([]unix.EpollEvent, 2*len(events)) // there may be more
	}
}

func (e *ends) close() error {
	if err := unix.Close(e.epoll); err != nil {
		return fmt.Errorf("end the watch for ends of processes: %w", err)
	}
	return nil
}
