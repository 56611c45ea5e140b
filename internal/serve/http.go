// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/kerf-gpu/kerf/internal/serve/limit"
)

const (
	// headerTime bounds how long a peer may take to send a request.
	headerTime = 3 * time.Second
	// answerTime bounds the time from the end of a request's header to the end of its answer.
	answerTime = 15 * time.Second
	// maxHeader bounds a request's header, in bytes.
	maxHeader = 8 << 10
	// stopTime is how long answers may take after a stop.
	stopTime = 3 * time.Second
)

// HTTP answers on l with h until ctx ends, and closes l. A connection has one answer. The error is nil when ctx ended it.
func HTTP(ctx context.Context, l *Listener, h http.Handler) error {
	s := &http.Server{
		Handler: limited(h), ReadHeaderTimeout: headerTime, WriteTimeout: answerTime, MaxHeaderBytes: maxHeader,
		ConnContext: withConn,
		ErrorLog:    slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug), // a peer's mistakes are its own
	}
	s.SetKeepAlivesEnabled(false)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	select {
	case err := <-done:
		return fmt.Errorf("serve HTTP on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	err := s.Shutdown(stop)
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.Close()
	}
	if serr := <-done; !errors.Is(serr, http.ErrServerClosed) {
		err = errors.Join(err, serr)
	}
	return err
}

// connKey is the key of a request's Conn in its context.
type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	if conn, ok := c.(*Conn); ok {
		return context.WithValue(ctx, connKey{}, conn)
	}
	return ctx
}

// ConnOf is the connection of a request, nil for one that no Listener took.
func ConnOf(ctx context.Context) *Conn {
	c, _ := ctx.Value(connKey{}).(*Conn)
	return c
}

// limited answers a request with h if its peer may have one more. A request with a body is rejected: no answer depends on
// one.
func limited(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn := ConnOf(r.Context())
		if conn == nil {
			http.Error(w, "the connection is not counted", http.StatusInternalServerError)
			return
		}
		if r.ContentLength != 0 {
			_ = conn.SetReadDeadline(time.Now()) // the server does not wait for the body
			http.Error(w, "the request has a body", http.StatusBadRequest)
			return
		}
		end, ok := conn.Begin(limit.Request)
		if !ok {
			busy(w, "too many requests are in flight")
			return
		}
		defer end()
		h.ServeHTTP(w, r)
	})
}

func busy(w http.ResponseWriter, why string) {
	w.Header().Set("Retry-After", "1")
	http.Error(w, why+"; try again later", http.StatusServiceUnavailable)
}
