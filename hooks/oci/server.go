// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/kerf-gpu/kerf/hooks/oci/wire"
	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/internal/serve"
	"github.com/kerf-gpu/kerf/internal/sleep"
	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// talkTime bounds the receipt of the question, and again the sending of the answer.
	talkTime = 5 * time.Second
	// firstPause and maxPause bound the time after an Accept that failed.
	firstPause = 10 * time.Millisecond
	maxPause   = time.Second
)

// Activator sets the cap of one container, reads it back and marks the grant Active. It must support concurrent calls.
// A repeated call must return the same answer, because a hook whose agent died asks again. An error that wraps
// sharing.ErrUnavailable, or the context's, makes the hook try again until its deadline. Every other error is final.
type Activator interface {
	ActivateContainer(ctx context.Context, call sharing.HookCall) error
}

// Server answers kerf-hook.
type Server struct {
	armer   Activator
	log     *slog.Logger
	version string
	// peer tells who asks; tests put another in its place.
	peer func(net.Conn) (pid int, uid uint32, err error)

	activateTime, talkTime time.Duration
}

// NewServer returns a server that calls armer. version is the agent's; hooks use it in messages.
func NewServer(armer Activator, log *slog.Logger, version string) *Server {
	return &Server{armer: armer, log: log, version: version, peer: peerOf, activateTime: wire.HookAnswer,
		talkTime: talkTime}
}

// Serve answers the hooks that connect to l, until ctx ends. It closes l and returns once the last answer has been
// sent. l bounds how many it answers at once. The error is nil when ctx ended. It wraps sharing.ErrUnavailable when
// another closed l.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	var talks sync.WaitGroup
	defer func() {
		stop()
		_ = l.Close()
		talks.Wait()
	}()
	pause := firstPause
	for {
		conn, err := l.Accept()
		if err == nil {
			pause = firstPause
			talks.Go(func() { s.talk(ctx, conn) })
			continue
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("serve hooks on %q: %w (%w)", l.Addr(), err, sharing.ErrUnavailable)
		}
		// Too many open files, above all: it may pass, and hooks wait for it.
		s.log.Error("failed to accept connections of hooks", "error", err, "retry_in", pause)
		if !sleep.For(ctx, pause) {
			return nil
		}
		pause = min(2*pause, maxPause)
	}
}

// talk answers one hook.
func (s *Server) talk(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	start := time.Now()
	_ = conn.SetDeadline(start.Add(s.talkTime)) // a connection that cannot have one fails at once below
	pid, uid, denied := s.peer(conn)
	if denied == nil && uid != 0 {
		denied = fmt.Errorf("user %d: only root may request it: %w", uid, sharing.ErrDenied)
	}
	// The question is taken also from who gets no answer to it: one that still writes would not see a reason.
	q, err := wire.ReadRequest(conn)
	if denied != nil {
		s.log.Warn("rejected hook", "peer_pid", pid, "peer_uid", uid, "error", denied)
		s.answer(conn, wire.Response{Message: denied.Error()})
		return
	}
	if err != nil {
		s.log.Warn("failed to read the request of a hook", "peer_pid", pid, "error", err)
		s.answer(conn, wire.Response{Message: err.Error()})
		return
	}
	p := s.activate(ctx, q)
	log := s.log.With("container", q.Container, "pid", q.PID, "ask", q.Amount, "grant", q.Grant, "hook_version",
		q.Version,
		"took", time.Since(start))
	switch {
	case p.OK:
		log.Debug("activated grant of container")
	case p.Retry:
		log.Info("postponed activation of container", "reason", p.Message)
	default:
		log.Warn("rejected container", "reason", p.Message)
	}
	s.answer(conn, p)
}

func (s *Server) activate(ctx context.Context, q wire.Request) wire.Response {
	if q.Container == "" || q.PID <= 1 {
		return wire.Response{Message: fmt.Sprintf("container %q with pid %d cannot be activated", q.Container, q.PID)}
	}
	ctx, cancel := context.WithTimeout(ctx, s.activateTime)
	defer cancel()
	err := s.armer.ActivateContainer(ctx, sharing.HookCall{ContainerID: q.Container, PID: q.PID, Amount: q.Amount,
		Grant: q.Grant, Note: q.Note})
	if err == nil {
		return wire.Response{OK: true}
	}
	// An agent that stops leaves the question to the next one.
	retry := errors.Is(err, sharing.ErrUnavailable) || errors.Is(err, context.Canceled) ||
		errors.Is(err, context.DeadlineExceeded)
	return wire.Response{Retry: retry, Message: err.Error()}
}

func (s *Server) answer(conn net.Conn, p wire.Response) {
	p.Version = s.version
	_ = conn.SetDeadline(time.Now().Add(s.talkTime))
	if err := wire.WriteResponse(conn, p); err != nil {
		// The hook was killed, or has waited long enough. It has not let the program run.
		s.log.Info("failed to answer hook", "error", err)
	}
}

// peerOf asks the kernel who is at the other end.
func peerOf(conn net.Conn) (pid int, uid uint32, err error) {
	unix, ok := serve.Unwrap(conn).(*net.UnixConn)
	if !ok {
		return 0, 0, fmt.Errorf("%T is no unix socket: %w", conn, sharing.ErrDenied)
	}
	p, err := process.PeerOf(unix)
	if err != nil {
		return 0, 0, err
	}
	p.Process.Close()
	return p.PID, p.UID, nil
}
