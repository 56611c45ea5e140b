// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package service is kerf-monitor. It samples GPUs once per interval, joins the samples with the agent's grants, and
// serves the result to Prometheus and to streams.
//
// Promised: it only reads. Each listener has separate bounds. A container gets only its pod's usage.
//
// Not promised: current grants while the agent does not answer. The last known ones are used, and marked.
package service

import (
	"context"
	"fmt"
	"io"
	"log/slog"
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
	"github.com/kerf-gpu/kerf/internal/quiesce"
	"github.com/kerf-gpu/kerf/internal/serve"
	"github.com/kerf-gpu/kerf/internal/serve/servemetrics"
	"github.com/kerf-gpu/kerf/monitor/collect"
	"github.com/kerf-gpu/kerf/monitor/exposition"
	"github.com/kerf-gpu/kerf/monitor/source"
	"github.com/kerf-gpu/kerf/monitor/stream"
)

// quietDir, under the agent's directory, is where the agent asks others to let go of a GPU.
const quietDir = "quiet"

// Options are what the monitor's flags say, checked.
type Options struct {
	// Dir is the absolute path of the directory of the agent's sockets.
	Dir string
	// Group may watch the stream, besides root.
	Group string
	// HTTP is the TCP address of /metrics and /healthz; empty for none.
	HTTP string
	// NodeName is the label hostname of the DCGM_FI_* series.
	NodeName string
	// Version is the program's.
	Version string
	// Interval is the time between two samples.
	Interval time.Duration
	// HostCgroups says that this is a container, from which the machine's cgroups are to be seen.
	HostCgroups bool
	// Libraries are the paths at which NVML's library is looked for.
	Libraries []string
	// DCGM says whether DCGM is used where its library is found, by the host engine DCGMEngine (see source.NewDCGM).
	DCGM       bool
	DCGMEngine string
	// Fields are the DCGM_FI_* series to tell; all if there is none. Others are fields that the monitor does not have.
	Fields []collect.FieldInfo
	Others []string
	Log    *slog.Logger
	// Again starts this very program again in its place; it returns only an error.
	Again func() error
}

// Run samples and serves until ctx ends.
func Run(ctx context.Context, o Options) error { return (&monitor{o}).run(ctx) }

// monitor is one run of the program.
type monitor struct{ Options }

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
	m.Log.Info("restarted in the host's cgroup namespace")
	return fmt.Errorf("start again in the host's cgroup namespace: %w", m.Again())
}

// run is Run.
func (m *monitor) run(ctx context.Context) error {
	if m.HostCgroups {
		if err := m.joinHost(); err != nil {
			return fmt.Errorf("--host-cgroup-namespace: %w", err)
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
	defer m.closed("process events", deaths)
	if len(m.Others) > 0 {
		m.Log.Warn("ignored unknown fields", "fields", m.Others)
	}
	open, err := m.open()
	if err != nil {
		return err
	}
	others := quiesce.Dir(filepath.Join(m.Dir, quietDir))
	if err := os.MkdirAll(string(others), 0o700); err != nil { // it has to be there before the agent asks
		m.Log.Warn("failed to serve release requests of kerf-agent", "error", err.Error())
	}
	reader := others.Reader()
	defer m.closed("GPU locks", reader)

	g, ctx := errgroup.WithContext(ctx)
	hub, nvml := collect.NewBroadcaster(), source.NewNVML(m.Libraries, reader, m.Log)
	g.Go(func() error { return nvml.Run(ctx) })
	m.sample(ctx, g, nvml, hub, processes{deaths, hierarchy})
	if open.web != nil {
		g.Go(func() error {
			return m.serveHTTP(ctx, shares[shareWeb].Listen(open.web, serve.Rules{}), shares, hub, nvml.Stuck)
		})
	}
	g.Go(func() error { return stream.New(hub).Serve(ctx, shares[shareStream].Listen(open.group, serve.Rules{})) })
	g.Go(func() error {
		own := shares[sharePods].Listen(open.pods, serve.Rules{Identify: askers{hierarchy, hub}.identify})
		return serve.HTTP(ctx, own, http.HandlerFunc(answer))
	})
	return g.Wait()
}

// closed closes something of the monitor's at its end.
func (m *monitor) closed(object string, c io.Closer) {
	if err := c.Close(); err != nil {
		m.Log.Warn("failed to close", "object", object, "error", err.Error())
	}
}

// sample starts in g what samples the GPUs, with DCGM where it is used, and joins the samples with the agent's grants.
func (m *monitor) sample(ctx context.Context, g *errgroup.Group, nvml *source.NVML, hub *collect.Broadcaster,
	of processes) {
	var gpus collect.Source = nvml
	if m.DCGM {
		d := source.NewDCGM(nvml, m.Interval, m.DCGMEngine, m.Log)
		g.Go(func() error { return d.Stream(ctx) })
		gpus = d
	}
	grants := newGrants(m.Log)
	g.Go(func() error { return grants.follow(ctx, m.Dir) })
	g.Go(func() error {
		return collect.New(collect.Options{Source: gpus, Grants: grants, Processes: of, Broadcaster: hub, Log: m.Log,
			Interval: m.Interval}).Run(ctx)
	})
}

// serveHTTP answers /metrics and /healthz until ctx ends. The function stuck says why the program should be started
// again.
func (m *monitor) serveHTTP(ctx context.Context, web *serve.Listener, shares map[string]*serve.Share,
	hub *collect.Broadcaster, stuck func() string) error {
	reg := prometheus.NewRegistry()
	reg.MustRegister(servemetrics.New(shares), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewGoCollector())
	all := exposition.Merge(exposition.New(exposition.Options{Latest: hub.Latest, Version: m.Version,
		Hostname: m.NodeName, Fields: m.Fields}), reg)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", serve.Rendered(promhttp.HandlerFor(all,
		promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}), scrapesAtOnce))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		s := hub.Latest()
		if s == nil || time.Since(s.At) > 10*time.Second+5*m.Interval {
			http.Error(w, "no sample of late", http.StatusServiceUnavailable)
			return
		}
		if why := stuck(); why != "" {
			http.Error(w, why, http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	return serve.HTTP(ctx, web, mux)
}
