// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nodeclient

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kerf-gpu/kerf/sharing"
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

// refused reports whether err means that the socket exists without a listener, or has too many callers.
func refused(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EAGAIN)
}

// Await waits until the agent of directory dir listens, at most for window, and reports whether it had to wait.
// Without a socket it returns at once, because no agent is about to come back. Errors are those of a call that could
// not connect.
func Await(ctx context.Context, dir string, window time.Duration) (waited bool, err error) {
	const pause = 100 * time.Millisecond
	l := &link{dir: dir, path: SocketPath(dir)}
	deadline := time.Now().Add(window)
	for {
		conn, err := connect(ctx, l.path)
		if err == nil {
			return waited, conn.Close()
		}
		if ctx.Err() != nil {
			return waited, context.Cause(ctx)
		}
		// One that comes back takes the old socket away before it makes its own.
		comesBack := refused(err) || waited && errors.Is(err, fs.ErrNotExist)
		if !comesBack || time.Now().Add(pause).After(deadline) {
			return waited, l.explain(err)
		}
		waited = true
		select {
		case <-ctx.Done():
			return waited, context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// How far a call came before it failed. Each wraps a word of the vocabulary.
var (
	// ErrNoAgent: there is no socket, so no agent was started there. It is sharing.ErrNotFound.
	ErrNoAgent = fmt.Errorf("no agent: %w", sharing.ErrNotFound)
	// ErrRestarting: the socket exists without a listener. It is sharing.ErrUnavailable.
	ErrRestarting = fmt.Errorf("agent does not listen: %w", sharing.ErrUnavailable)
	// ErrNotReady: the agent answered that it takes no grants now, and why; nothing took effect. It is
	// sharing.ErrUnavailable.
	ErrNotReady = fmt.Errorf("agent not ready: %w", sharing.ErrUnavailable)
	// ErrBroken: the agent went away in the middle of a call; the call may have taken effect. It is
	// sharing.ErrUnavailable.
	ErrBroken = fmt.Errorf("agent went away: %w", sharing.ErrUnavailable)
)

// Error is a failed call: one sentence for people, and what it means for programs (errors.Is).
type Error struct {
	Text string
	Kind error
}

// Error returns the sentence.
func (e *Error) Error() string { return e.Text }

// Unwrap returns the kind.
func (e *Error) Unwrap() error { return e.Kind }

// plain turns the error of a call with that much time into an *Error; nil stays nil, and the caller's own
// cancellation stays context.Canceled.
func (c *Client) plain(err error, timeout time.Duration) error {
	if err == nil {
		return nil
	}
	st, ok := status.FromError(err)
	if !ok {
		return fmt.Errorf("call the agent: %w", err)
	}
	if st.Code() == codes.Unavailable {
		switch broken, failed := c.link.state(); {
		case broken:
			return &Error{"the agent went away in the middle of the call", ErrBroken}
		case failed != nil:
			return c.link.explain(failed)
		}
	}
	return fromStatus(st, timeout)
}

// explain says why the socket could not be opened and what to do about it.
func (l *link) explain(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return &Error{fmt.Sprintf("no kerf-agent at %q: start it with kerf-agent --run-dir %q", l.dir, l.dir),
			ErrNoAgent}
	case refused(err):
		return &Error{fmt.Sprintf("the kerf-agent at %q does not listen: it is restarting, or was stopped", l.dir),
			ErrRestarting}
	case errors.Is(err, fs.ErrPermission):
		return &Error{fmt.Sprintf("no permission for %q: become a member of the socket's group "+
			"(usermod -aG kerf USER, then log in again), or run as root", l.path), sharing.ErrDenied}
	case errors.Is(err, syscall.EINVAL):
		return &Error{
			fmt.Sprintf("the socket path %q is too long for a unix socket (107 bytes): use a shorter --run-dir",
				l.path), sharing.ErrInvalid}
	}
	return &Error{fmt.Sprintf("connect to %q: %v", l.path, err), sharing.ErrUnavailable}
}

// fromStatus gives what the agent (or gRPC itself) said its place in the vocabulary.
func fromStatus(st *status.Status, timeout time.Duration) error {
	text := st.Message()
	if text == "" {
		text = st.Code().String()
	}
	switch st.Code() {
	case codes.Canceled:
		return &Error{text, context.Canceled}
	case codes.DeadlineExceeded:
		return &Error{fmt.Sprintf("the agent did not answer within %s", timeout), sharing.ErrUnavailable}
	case codes.InvalidArgument, codes.OutOfRange:
		return &Error{text, sharing.ErrInvalid}
	case codes.ResourceExhausted:
		return &Error{text, sharing.ErrExhausted}
	case codes.AlreadyExists:
		return &Error{text, sharing.ErrConflict}
	case codes.FailedPrecondition:
		return &Error{text, sharing.ErrUnsupported}
	case codes.Unimplemented:
		return &Error{"the agent has another version of this API; use the kerf of its release",
			sharing.ErrUnsupported}
	case codes.PermissionDenied, codes.Unauthenticated:
		return &Error{text, sharing.ErrDenied}
	case codes.NotFound:
		return &Error{text, sharing.ErrNotFound}
	case codes.Aborted:
		return &Error{text, sharing.ErrStale}
	case codes.DataLoss:
		return &Error{text, sharing.ErrLost}
	case codes.Unavailable:
		return &Error{text, ErrNotReady}
	case codes.OK, codes.Unknown, codes.Internal:
	}
	return &Error{text, sharing.ErrUnavailable}
}
