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
	// stopTimeout is how long answers may go on after a stop.
	stopTimeout = 3 * time.Second
)

// Serve answers on l with h until ctx ends, and closes l. The error is nil when ctx ended it.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	s := &http.Server{Handler: h, ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, MaxHeaderBytes: maxHeader}
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
