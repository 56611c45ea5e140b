// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sharing"
)

// maxAnswer bounds what is read from a daemon.
const maxAnswer = 64 << 20

// Client is a connection to a daemon.
type Client struct {
	conn *net.UnixConn
	pid  int
}

// Dial connects to the daemon of a simulated node. It is sharing.ErrUnavailable when none runs there.
func Dial(ctx context.Context, dir string) (*Client, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", SocketPath(dir))
	if err != nil {
		switch {
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ECONNREFUSED):
			return nil, fmt.Errorf("no simulated driver runs in %q; start one with `gpusim start`: %w", dir,
				sharing.ErrUnavailable)
		case errors.Is(err, unix.EACCES):
			return nil, fmt.Errorf("reach the simulated driver in %q: it is another user's: %w", dir, sharing.ErrDenied)
		}
		return nil, fmt.Errorf("reach the simulated driver in %q: %w (%w)", dir, err, sharing.ErrUnavailable)
	}
	uc, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("reach the simulated driver in %q: no unix socket", dir), conn.Close())
	}
	cred, err := PeerCred(uc)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("reach the simulated driver in %q: %w", dir, err), uc.Close())
	}
	return &Client{conn: uc, pid: int(cred.Pid)}, nil
}

// PeerCred returns who is at the other end of a unix socket, as the kernel has it.
func PeerCred(conn syscall.Conn) (*unix.Ucred, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("peer credentials: %w", err)
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) // #nosec G115 -- a descriptor
	})
	if err = errors.Join(err, credErr); err != nil {
		return nil, fmt.Errorf("peer credentials: %w", err)
	}
	return cred, nil
}

// DaemonPID returns the process that listens, as the kernel has it; 0 when it is in another pid namespace.
func (c *Client) DaemonPID() int { return c.pid }

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Call sends a request and decodes the answer's result into result, unless that is nil. ctx bounds the wait.
func (c *Client) Call(ctx context.Context, req Request, result any) error {
	if deadline, ok := ctx.Deadline(); ok {
		if err := c.conn.SetDeadline(deadline); err != nil {
			return fmt.Errorf("%s: %w", req.Command, err)
		}
	}
	if err := json.NewEncoder(c.conn).Encode(req); err != nil {
		return fmt.Errorf("%s: send: %w (%w)", req.Command, err, sharing.ErrUnavailable)
	}
	var a Answer
	if err := json.NewDecoder(&limitedReader{conn: c.conn, left: maxAnswer}).Decode(&a); err != nil {
		return fmt.Errorf("%s: no answer: %w (%w)", req.Command, err, sharing.ErrUnavailable)
	}
	if err := a.Err(); err != nil {
		return err
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(a.Result, result); err != nil {
		return fmt.Errorf("%s: answer: %w", req.Command, err)
	}
	return nil
}

type limitedReader struct {
	conn net.Conn
	left int
}

func (r *limitedReader) Read(p []byte) (int, error) {
	if r.left <= 0 {
		return 0, errors.New("answer is too long")
	}
	n, err := r.conn.Read(p[:min(len(p), r.left)])
	r.left -= n
	return n, err
}

// Call connects, sends one request and closes.
func Call(ctx context.Context, dir string, req Request, result any) error {
	c, err := Dial(ctx, dir)
	if err != nil {
		return err
	}
	return errors.Join(c.Call(ctx, req, result), c.Close())
}
