// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package httpserve answers HTTP on a listener until it is told to stop.
//
// It promises that a client which is slow to ask or to read holds a connection for a bounded time, and that a stop lets
// answers that are under way end, but not for ever. What is answered is the caller's.
package httpserve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

const (
	headerTimeout = 5 * time.Second
	readTimeout   = 10 * time.Second
	writeTimeout  = 20 * time.Second
	maxHeader     = 16 << 10
	// mostAtOnce is how many connections are served at once by a server that anybody may ask; the next waits for one to end.
	// mostOfOne is how many of them one caller can hold; the next is closed at once.
	mostAtOnce, mostOfOne = 256, 16
	// stopTimeout is how long answers may go on after a stop.
	stopTimeout = 3 * time.Second
)

// Serve answers on l with h until ctx ends, and closes l. The error is nil when ctx ended it.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	return serve(ctx, l, &http.Server{Handler: h, ReadTimeout: readTimeout, WriteTimeout: writeTimeout})
}

// Caller is who is at the other end of a connection. Connections with one Name are one caller's.
type Caller struct {
	Name    string
	Handler http.Handler
}

// ServeEach is Serve with a handler for each connection, which of chooses by who is at its other end. A connection has
// one answer, within a few seconds, because anybody may be there; only so many are served at once, and so few of one
// caller that it keeps nobody else from being served.
func ServeEach(ctx context.Context, l net.Listener, of func(net.Conn) Caller) error {
	type key struct{}
	s := &http.Server{
		ReadTimeout: headerTimeout, WriteTimeout: headerTimeout,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if limited, ok := c.(*one); ok {
				return context.WithValue(ctx, key{}, limited.caller.Handler)
			}
			return ctx
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if h, ok := r.Context().Value(key{}).(http.Handler); ok {
				h.ServeHTTP(w, r)
			}
		}),
	}
	s.SetKeepAlivesEnabled(false)
	return serve(ctx, limit(l, mostAtOnce, mostOfOne, of), s)
}

func serve(ctx context.Context, l net.Listener, s *http.Server) error {
	s.ReadHeaderTimeout, s.MaxHeaderBytes = headerTimeout, maxHeader
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	select {
	case err := <-done:
		return fmt.Errorf("serve HTTP on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
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
