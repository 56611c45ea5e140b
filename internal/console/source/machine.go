// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
	"github.com/kerf-gpu/kerf/internal/agentusage"
	"github.com/kerf-gpu/kerf/internal/console/stream"
	"github.com/kerf-gpu/kerf/internal/nodeclient"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/config/change"
	"github.com/kerf-gpu/kerf/sharing/simulate"
	"github.com/kerf-gpu/kerf/sharing/usage"
)

const (
	// watchEvery is how often the agent reports measured values.
	watchEvery = 2 * time.Second
	// sampleEvery is how often a point is kept, and mostPoints how many.
	sampleEvery = 10 * time.Second
	mostPoints  = 360
)

// Machine reads the agent of this machine. Make one with NewMachine.
type Machine struct {
	dir, name string

	mu     sync.Mutex
	points map[string][]Point
	// last is what the agent reported last.
	last stream.Node
}

// NewMachine reads the agent whose socket is in dir. The machine is shown by its name.
func NewMachine(dir, name string) *Machine {
	return &Machine{dir: dir, name: name, points: map[string][]Point{}}
}

// Run implements Source.
func (m *Machine) Run(ctx context.Context, hub *stream.Broadcaster) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { flush(ctx, hub); return nil })
	g.Go(func() error {
		err := nodeclient.WatchReconnecting(ctx, m.dir, watchEvery, func(p *nodeapi.GetNodeResponse) error {
			m.see(hub, p, time.Now())
			return nil
		}, func(err error) error {
			m.away(hub, err)
			return nil
		})
		if ctx.Err() != nil {
			return nil //nolint:nilerr // that is how it ends
		}
		return err
	})
	return g.Wait()
}

// see tells the hub of the agent's state, and keeps a point of each GPU now and then.
func (m *Machine) see(hub *stream.Broadcaster, p *nodeapi.GetNodeResponse, now time.Time) {
	status, measured := statusOf(p)
	hub.Describe(stream.Meta{Source: "machine", Problems: append([]string{}, p.GetWarnings()...), Prometheus: true})
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = stream.Node{Live: simulate.LiveNode{Name: m.name, Report: &status}, Usage: measured}
	hub.Node(m.last)
	for id, u := range measured {
		list := m.points[id]
		if len(list) > 0 && now.Sub(list[len(list)-1].Time) < sampleEvery {
			continue
		}
		one := Point{Time: now}
		if u.Used != nil {
			v := float64(*u.Used)
			one.Memory = &v
		}
		if u.Utilization != nil {
			v := float64(*u.Utilization)
			one.Utilization = &v
		}
		list = append(list, one)
		m.points[id] = list[max(0, len(list)-mostPoints):]
	}
}

// away tells the hub that the agent does not answer. Its last report stays, without the measured values.
func (m *Machine) away(hub *stream.Broadcaster, err error) {
	hub.Describe(stream.Meta{Source: "machine", Problems: []string{"Cannot read the agent: " + err.Error()},
		Prometheus: true})
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last.Live.Report != nil && !m.last.Silent {
		m.last.Silent, m.last.Usage = true, nil
		hub.Node(m.last)
	}
}

// Usage implements Source.
func (m *Machine) Usage(ctx context.Context, since time.Duration, _ []string) ([]usage.Part, config.Prices, error) {
	var answer bytes.Buffer
	if err := nodeclient.Usage(ctx, m.dir, time.Now().Add(-since), &answer); err != nil {
		return nil, config.Prices{}, fmt.Errorf("read usage: %w", err)
	}
	return agentusage.Read(&answer, func(uint32) string { return "" })
}

// History implements Source.
func (m *Machine) History(_ context.Context, gpu string, since time.Duration) ([]Point, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := []Point{}
	for _, p := range m.points[gpu] {
		if time.Since(p.Time) <= since {
			out = append(out, p)
		}
	}
	return out, nil
}

// Events implements Source. A machine has none.
func (m *Machine) Events(context.Context, string, string) ([]Event, error) { return []Event{}, nil }

// Plan implements Source. The agent tells no text of its config, so that the built-in one is compared.
func (m *Machine) Plan(_ context.Context, after config.Config, files []config.File) (any, error) {
	differences, err := change.Between(config.Default(), after)
	if err != nil {
		return nil, err
	}
	return map[string]any{"sha256": config.Hash(files), "differences": differences,
		"unknown": []string{"The fields are compared with the built-in config. To see what the agent would change, " +
			"use kerf config plan in a cluster."}}, nil
}
