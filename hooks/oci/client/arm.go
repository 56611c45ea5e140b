// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/kerf-gpu/kerf/hooks/oci/wire"
)

const (
	// firstPause and maxPause bound the time between two attempts; it doubles in between.
	firstPause = 20 * time.Millisecond
	maxPause   = 500 * time.Millisecond
)

// refusal is an error that asking again would not change.
type refusal struct{ error }

// Unwrap gives the error itself.
func (r refusal) Unwrap() error { return r.error }

func isFinal(err error) bool {
	_, ok := errors.AsType[refusal](err)
	return ok
}

// Options are the arguments of the hook.
type Options struct {
	// Socket is the absolute path of the agent's socket.
	Socket string
	// Amount is the amount that was admitted, RESOURCE:COUNT; empty if the spec names none.
	Amount string
	// Grant is the grant to activate; empty if the agent finds it by the container.
	Grant string
	// Wait bounds the whole run.
	Wait time.Duration
}

// Activate reads the OCI state of a container from stdin, and returns nil when the agent says that the container's
// cap is enforced. Its error tells a person why the container is not started.
func Activate(ctx context.Context, version string, o Options, stdin io.Reader) error {
	return hook{dial: dial, version: version, firstPause: firstPause}.activate(ctx, o, stdin)
}

// hook asks the agent.
type hook struct {
	dial       func(ctx context.Context, path string) (net.Conn, error)
	version    string
	firstPause time.Duration
}

// activate is Activate with this hook's connections and pauses.
func (h hook) activate(ctx context.Context, o Options, stdin io.Reader) error {
	ctx, cancel := context.WithTimeout(ctx, o.Wait)
	defer cancel()
	s, err := readState(ctx, stdin)
	if err != nil {
		return err
	}
	q := wire.Request{Container: s.ID, PID: s.PID, Amount: o.Amount, Grant: o.Grant, Note: s.note(),
		Version: h.version}
	pause := h.firstPause
	var why error // of the last try that ended before the deadline, if there was one
	for {
		err := h.ask(ctx, o.Socket, q)
		switch {
		case err == nil:
			return nil
		case isFinal(err):
			return fmt.Errorf("container %q is not started: %w", shorten(s.ID), err)
		case why == nil || ctx.Err() == nil && !errors.Is(err, os.ErrDeadlineExceeded):
			why = err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
			pause = min(2*pause, maxPause)
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("container %q is not started: waited %s: %w", shorten(s.ID), o.Wait, why)
		}
	}
}

// ask puts the question once. An error that is no refusal may be gone a little later.
func (h hook) ask(ctx context.Context, socket string, q wire.Request) error {
	ctx, cancel := context.WithTimeout(ctx, wire.HookAttempt)
	defer cancel()
	conn, err := h.dial(ctx, socket)
	if errors.Is(err, fs.ErrPermission) || isFinal(err) {
		return refusal{fmt.Errorf("connect to kerf-agent: %w", err)}
	}
	if err != nil {
		return fmt.Errorf("no kerf-agent answers at %q (%w): see why it does not run on this node", socket, cause(err))
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return fmt.Errorf("talk to kerf-agent: %w", err)
		}
	}
	var other *wire.VersionError
	if err := wire.WriteRequest(conn, q); errors.Is(err, wire.ErrMalformed) {
		return refusal{fmt.Errorf("talk to kerf-agent: %w", err)}
	} else if err != nil {
		return fmt.Errorf("talk to kerf-agent: %w", err)
	}
	p, err := wire.ReadResponse(conn)
	switch {
	case errors.Is(err, wire.ErrMalformed), errors.As(err, &other):
		return refusal{fmt.Errorf("talk to kerf-agent: %w", err)}
	case err != nil:
		return fmt.Errorf("talk to kerf-agent: %w", err)
	case p.OK:
		return nil
	case p.Retry:
		return fmt.Errorf("kerf-agent (%s) is not ready: %s", p.Version, reason(p))
	}
	return refusal{fmt.Errorf("kerf-agent (%s): %s", p.Version, reason(p))}
}

// cause is what the system said, without the words around it, which repeat the path.
func cause(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return err
}

func reason(p wire.Response) string {
	if p.Message == "" {
		return "no reason given"
	}
	return p.Message
}

// dial connects to the agent's socket, and refuses one that another user than ours listens on.
func dial(ctx context.Context, path string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	uid, err := listenerUID(conn)
	if err == nil && uid != os.Geteuid() {
		err = refusal{fmt.Errorf("user %d listens at %q", uid, path)}
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// listenerUID tells whose process made the socket at the other end.
func listenerUID(conn net.Conn) (int, error) {
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		return 0, refusal{fmt.Errorf("%T is no unix socket", conn)}
	}
	raw, err := unix.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("read peer credentials: %w", err)
	}
	var cred *syscall.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err := errors.Join(err, credErr); err != nil {
		return 0, fmt.Errorf("read peer credentials: %w", err)
	}
	return int(cred.Uid), nil
}
