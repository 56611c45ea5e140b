// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nodeclient

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// dialTimeout bounds one connect; on a unix socket only a full backlog makes it wait.
const dialTimeout = 5 * time.Second

// link makes the connections of one client and remembers how the last one failed. gRPC folds an agent that
// is absent, refuses, breaks off or answers "unavailable" into one status code; the link can tell.
type link struct {
	dir, path string

	mu     sync.Mutex
	failed error // why the last connect failed, nil after one that worked
	// broken: a connection ended, and not by our Close. It stays, so that a later connect that fails never
	// hides that a call may have taken effect.
	broken bool
}

// dial connects to the socket. gRPC passes a placeholder for the address.
func (l *link) dial(ctx context.Context, _ string) (net.Conn, error) {
	conn, err := connect(ctx, l.path)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = err
	if err != nil {
		return nil, err
	}
	return &watchedConn{Conn: conn, link: l}, nil
}

// connect opens the socket, or returns the plain system error.
func connect(ctx context.Context, path string) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTimeout}
	return d.DialContext(ctx, "unix", path)
}

// state returns whether a connection ever broke, and how the last connect failed.
func (l *link) state() (broken bool, failed error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broken, l.failed
}

// watchedConn tells its link when the other side ends the connection.
type watchedConn struct {
	net.Conn
	link *link
}

// Read is the connection's own, noting its end.
func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.note(err)
	return n, err
}

// Write is the connection's own, noting its end.
func (c *watchedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.note(err)
	return n, err
}

func (c *watchedConn) note(err error) {
	if err == nil || errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
		return
	}
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	c.link.broken = true
}

// refused tells whether err means that the socket is there and nobody listens now, or too many ask at once.
func refused(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EAGAIN)
}
