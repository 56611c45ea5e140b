// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/monitor/collect"
	"github.com/kerf-gpu/kerf/monitor/exposition"
)

// monitor is one run of the program.
type monitor struct {
	settings
	log *slog.Logger
}

// run samples and serves until ctx ends.
func (m *monitor) run(ctx context.Context) error {
	hierarchy, err := cgroup.Default()
	if err != nil {
		return fmt.Errorf("find out whose processes are: %w", err)
	}
	if len(m.others) > 0 {
		m.log.Warn("fields that this monitor does not have are left out", "fields", m.others)
	}
	hub, books, source := collect.NewHub(), newBooks(m.log), newNVMLSource(m.libraries, m.log)
	c := collect.New(collect.Options{Source: source, Grants: books, Cgroups: hierarchy, Hub: hub, Log: m.log, Interval: m.interval})
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return source.follow(ctx) })
	g.Go(func() error { return books.follow(ctx, m.dir) })
	g.Go(func() error { return c.Run(ctx) })
	if m.http != "" {
		l, err := net.Listen("tcp", m.http)
		if err != nil {
			return fmt.Errorf("--http %q: %w", m.http, err)
		}
		m.log.Info("serving metrics", "address", l.Addr().String())
		g.Go(func() error { return m.serveHTTP(ctx, l, hub) })
	}
	return g.Wait()
}

// serveHTTP answers /metrics and /healthz until ctx ends.
func (m *monitor) serveHTTP(ctx context.Context, l net.Listener, hub *collect.Hub) error {
	reg := prometheus.NewRegistry()
	reg.MustRegister(
		exposition.New(exposition.Options{Latest: hub.Latest, Version: version, Hostname: m.nodeName, Fields: m.fields}),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewGoCollector(),
	)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		s := hub.Latest()
		if s == nil || time.Since(s.At) > 10*time.Second+5*m.interval {
			http.Error(w, "no sample of late", http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 20 * time.Second, MaxHeaderBytes: 16 << 10}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	select {
	case err := <-done:
		return fmt.Errorf("serve HTTP on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
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
