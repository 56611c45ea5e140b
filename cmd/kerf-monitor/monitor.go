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
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/internal/quiet"
	"github.com/kerf-gpu/kerf/internal/serve"
	"github.com/kerf-gpu/kerf/internal/serve/servemetrics"
	"github.com/kerf-gpu/kerf/monitor/collect"
	"github.com/kerf-gpu/kerf/monitor/exposition"
	"github.com/kerf-gpu/kerf/monitor/stream"
)

// monitor is one run of the program.
type monitor struct {
	settings
	log   *slog.Logger
	again func() error
}

// processes finds out whose processes are.
type processes struct {
	*process.Deaths
	hierarchy cgroup.Hierarchy
}

// Cgroup implements collect.Processes.
func (p processes) Cgroup(pid int) (string, error) { return p.hierarchy.OfProcess(pid) }

// joinHost makes this program run in the host's cgroup namespace: it starts itself again there if it must.
func (m *monitor) joinHost() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	moved, err := process.JoinHostCgroups()
	if err != nil || !moved {
		return err
	}
	m.log.Info("starting again in the host's cgroup namespace")
	return fmt.Errorf("start again in the host's cgroup namespace: %w", m.again())
}

// run samples and serves until ctx ends.
func (m *monitor) run(ctx context.Context) error {
	if m.hostCgroups {
		if err := m.joinHost(); err != nil {
			return fmt.Errorf("--host-cgroups: %w", err)
		}
	}
	shares, err := serve.Plan(listenerShares(), reservedFiles)
	if err != nil {
		return err
	}
	hierarchy, err := cgroup.Default()
	if err != nil {
		return fmt.Errorf("find out whose processes are: %w", err)
	}
	deaths, err := process.NewDeaths()
	if err != nil {
		return fmt.Errorf("find out whose processes are: %w", err)
	}
	defer func() {
		if err := deaths.Close(); err != nil {
			m.log.Warn("the watch of processes did not close", "error", err.Error())
		}
	}()
	if len(m.others) > 0 {
		m.log.Warn("fields that this monitor does not have are left out", "fields", m.others)
	}
	var web net.Listener
	if m.http != "" {
		if web, err = net.Listen("tcp", m.http); err != nil {
			return fmt.Errorf("--http %q: %w", m.http, err)
		}
		m.log.Info("serving metrics", "address", web.Addr().String())
	}
	unix, err := m.listen()
	var pods net.Listener
	if err == nil {
		if pods, err = m.listenForPods(); err != nil {
			err = errors.Join(err, unix.Close())
		}
	}
	if err != nil {
		if web != nil {
			err = errors.Join(err, web.Close())
		}
		return err
	}
	others := quiet.Dir(filepath.Join(m.dir, quietDir))
	if err := os.MkdirAll(string(others), 0o700); err != nil { // it has to be there before the agent asks
		m.log.Warn("kerf-agent cannot ask this monitor to let go of a GPU", "error", err.Error())
	}
	reader := others.Reader()
	defer func() {
		if err := reader.Close(); err != nil {
			m.log.Warn("the locks of GPUs did not close", "error", err.Error())
		}
	}()
	hub, books, nvml := collect.NewHub(), newBooks(m.log), newNVMLSource(m.libraries, reader, m.log)
	g, ctx := errgroup.WithContext(ctx)
	var source collect.Source = nvml
	if m.dcgm {
		d := newDCGMSource(nvml, m.interval, m.dcgmEngine, m.log)
		g.Go(func() error { return d.stream(ctx) })
		source = d
	}
	c := collect.New(collect.Options{Source: source, Grants: books, Processes: processes{deaths, hierarchy}, Hub: hub, Log: m.log, Interval: m.interval})
	g.Go(func() error { return nvml.follow(ctx) })
	g.Go(func() error { return books.follow(ctx, m.dir) })
	g.Go(func() error { return c.Run(ctx) })
	if web != nil {
		g.Go(func() error { return m.serveHTTP(ctx, shares[shareWeb].Listen(web, serve.Rules{}), shares, hub) })
	}
	g.Go(func() error { return stream.New(hub).Serve(ctx, shares[shareStream].Listen(unix, serve.Rules{})) })
	g.Go(func() error {
		own := shares[sharePods].Listen(pods, serve.Rules{Identify: askers{hierarchy, hub}.identify})
		return serve.HTTP(ctx, own, http.HandlerFunc(answer))
	})
	return g.Wait()
}

// serveHTTP answers /metrics and /healthz until ctx ends.
func (m *monitor) serveHTTP(ctx context.Context, web *serve.Listener, shares map[string]*serve.Share, hub *collect.Hub) error {
	reg := prometheus.NewRegistry()
	reg.MustRegister(servemetrics.New(shares), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewGoCollector())
	all := exposition.Beside(exposition.New(exposition.Options{Latest: hub.Latest, Version: version, Hostname: m.nodeName, Fields: m.fields}), reg)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", serve.Rendered(promhttp.HandlerFor(all, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}), scrapesAtOnce))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		s := hub.Latest()
		if s == nil || time.Since(s.At) > 10*time.Second+5*m.interval {
			http.Error(w, "no sample of late", http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	return serve.HTTP(ctx, web, mux)
}
