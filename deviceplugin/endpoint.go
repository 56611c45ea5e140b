// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kerf-gpu/kerf/internal/serve"
)

const (
	// look is the interval of checks of kubelet's socket and Kerf's. File events can be lost. A restarted kubelet
	// admits its pods again in a few hundred milliseconds, and fails each pod with a resource that is not registered.
	look = 50 * time.Millisecond
	// lookWatched is the interval while kubelet watches the list. If kubelet ends, its watch ends at once.
	lookWatched = time.Second
	// streamDeadline is how long kubelet may take from its answer to watching the list.
	streamDeadline = 10 * time.Second
	// firstPause doubles up to lastPause between attempts that fail.
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
)

// endpoint keeps one resource registered.
type endpoint struct {
	svc    service
	share  *serve.Share
	dir    string
	suffix string
	log    *slog.Logger

	mu         sync.Mutex
	registered bool
	last       error
}

// run registers the resource from the first list on until ctx ends.
func (e *endpoint) run(ctx context.Context) {
	for {
		l, changed := e.svc.board.read()
		if l != nil {
			break
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
	kubelet := filepath.Join(e.dir, kubeletSocket)
	pause := firstPause
	// old serves on until kubelet watches its successor: kubelet then never sees the resource without a plugin.
	var old *server
	for n := 1; ctx.Err() == nil; n++ {
		seen, start := identify(kubelet), time.Now()
		s, err := listen(ctx, filepath.Join(e.dir, socketName(e.svc.resource, e.suffix, n)), e.share, e.svc)
		if err != nil {
			e.note(false, err)
		} else {
			reason := e.round(ctx, s, old, seen)
			if ctx.Err() == nil {
				e.log.Info("restarted device plugin", "resource", e.svc.resource, "reason", reason)
			}
			old.close()
			old = s
		}
		if time.Since(start) > lastPause {
			pause = firstPause
		}
		if e.rest(ctx, pause, seen) {
			pause = firstPause
		} else {
			pause = min(2*pause, lastPause)
		}
	}
	old.close()
	e.note(false, nil)
}

// rest waits, but no longer than until there is another kubelet; it reports whether there is.
func (e *endpoint) rest(ctx context.Context, pause time.Duration, seen identity) bool {
	kubelet := filepath.Join(e.dir, kubeletSocket)
	end := time.Now().Add(pause)
	for {
		if !identify(kubelet).same(seen) {
			return true
		}
		left := time.Until(end)
		if left <= 0 {
			return false
		}
		t := time.NewTimer(min(left, look))
		select {
		case <-ctx.Done():
			t.Stop()
			return false
		case <-t.C:
		}
	}
}

// round registers one socket and returns when another is needed, with the reason, or when ctx ends.
func (e *endpoint) round(ctx context.Context, s, old *server, seen identity) string {
	kubelet := filepath.Join(e.dir, kubeletSocket)
	ctx, cancel := context.WithCancel(ctx)
	var calls sync.WaitGroup
	defer calls.Wait()
	defer cancel()

	answer := make(chan error, 1)
	call := func() {
		calls.Go(func() { answer <- register(ctx, e.dir, e.svc.resource, s.name()) })
	}
	var (
		busy, watched bool
		pause         = firstPause
		due           = time.Now()
		// patience ends the round when kubelet has answered and does not watch.
		patience  time.Time
		streaming = s.streaming
	)
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		now := time.Now()
		if !busy && !watched && patience.IsZero() && !now.Before(due) && seen.there() {
			busy = true
			call()
		}
		select {
		case <-ctx.Done():
			return "stopped"
		case <-streaming:
			// This is the proof that kubelet knows us, whatever becomes of its answer.
			streaming, watched = nil, true
			tick.Reset(lookWatched)
			e.note(true, nil)
			e.log.Info("registered device plugin", "resource", e.svc.resource, "socket", s.name())
			old.close()
		case <-s.idle:
			e.note(false, nil)
			return "kubelet does not watch the list any more"
		case <-s.failed:
			e.note(false, nil)
			return "the socket does not accept any more"
		case err := <-answer:
			busy = false
			switch {
			case watched:
			case err == nil:
				patience = time.Now().Add(streamDeadline)
			case status.Code(err) == codes.Unavailable:
				// There is no listener yet: the same socket will do.
				e.note(false, err)
				due, pause = time.Now().Add(pause), min(2*pause, lastPause)
			default:
				e.note(false, err)
				return "kubelet refused the registration"
			}
		case <-tick.C:
			switch {
			case s.gone():
				e.note(false, nil)
				return "the socket was removed"
			case !identify(kubelet).same(seen):
				e.note(false, nil)
				return "kubelet's socket is another one"
			case !watched && !patience.IsZero() && now.After(patience):
				return "kubelet answered and does not watch the list"
			}
		}
	}
}

// note keeps what Status tells, and logs an error once.
func (e *endpoint) note(registered bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil && (e.last == nil || e.last.Error() != err.Error()) {
		e.log.Warn("failed to register device plugin", "resource", e.svc.resource, "error", err)
	}
	e.registered, e.last = registered, err
}
