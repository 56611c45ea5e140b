// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sharing"
)

// Peer is who is at the other end of a unix socket, as the kernel noted it when the socket was connected.
type Peer struct {
	PID int
	UID uint32
	GID uint32
	// Pinned is true when the kernel itself handed out the pidfd of the process that connected (SO_PEERPIDFD, Linux
	// 6.5). Otherwise the process was found by pid after the fact. If the peer died and its pid was taken in between,
	// Process is the successor.
	Pinned bool
	// Process is a handle of the peer; the caller closes it.
	Process *Handle
}

// PeerOf reports the process at the other end of conn. The error is sharing.ErrDenied if the peer lives in a pid
// namespace that this process cannot see (pid 0). It is sharing.ErrNotFound if it has exited, and
// sharing.ErrUnavailable if the socket does not report it.
func PeerOf(conn *net.UnixConn) (Peer, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return Peer{}, fmt.Errorf("read peer credentials: %w (%w)", err, sharing.ErrUnavailable)
	}
	var cred *unix.Ucred
	var pidfd int
	var credErr, pidfdErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		pidfd, pidfdErr = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	})
	if err != nil {
		return Peer{}, fmt.Errorf("read peer credentials: %w (%w)", err, sharing.ErrUnavailable) // nothing was asked
	}
	if err := credErr; err != nil {
		if pidfdErr == nil {
			_ = unix.Close(pidfd)
		}
		return Peer{}, fmt.Errorf("read peer credentials: %w (%w)", err, sharing.ErrUnavailable)
	}
	return newPeer(cred, pidfd, pidfdErr)
}

// newPeer checks the socket's answer. It owns pidfd when pidfdErr is nil.
func newPeer(cred *unix.Ucred, pidfd int, pidfdErr error) (Peer, error) {
	p := Peer{PID: int(cred.Pid), UID: cred.Uid, GID: cred.Gid}
	if cred.Pid <= 0 {
		if pidfdErr == nil {
			_ = unix.Close(pidfd)
		}
		return Peer{}, fmt.Errorf("read peer credentials: the peer has no pid here (another pid namespace): %w",
			sharing.ErrDenied)
	}
	var err error
	switch {
	case pidfdErr == nil:
		p.Pinned = true
		p.Process, err = adopt(p.PID, pidfd)
	case errors.Is(pidfdErr, unix.ENOPROTOOPT):
		p.Process, err = Open(p.PID) // kernel older than 6.5
	default:
		// Kernels that know the option answer ESRCH, EINVAL or ENODATA for a peer that has been reaped.
		err = fmt.Errorf("read peer of pid %d: %w (%w)", p.PID, pidfdErr, sharing.ErrNotFound)
	}
	if err != nil {
		return Peer{}, err
	}
	return p, nil
}

// PeerUID tells the user id of who is at the other end of conn, in this process's user namespace. It opens no file. The
// error wraps sharing.ErrUnavailable.
func PeerUID(conn *net.UnixConn) (uint32, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("read peer credentials: %w (%w)", err, sharing.ErrUnavailable)
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(err, credErr); err != nil {
		return 0, fmt.Errorf("read peer credentials: %w (%w)", err, sharing.ErrUnavailable)
	}
	return cred.Uid, nil
}
