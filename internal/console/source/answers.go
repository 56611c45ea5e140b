// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/kerf-gpu/kerf/internal/configplan"
	"github.com/kerf-gpu/kerf/internal/kube/survey"
	"github.com/kerf-gpu/kerf/internal/promread"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/usage"
)

// Usage implements Source. It needs a Prometheus.
func (c *Cluster) Usage(ctx context.Context, since time.Duration, by []string) ([]usage.Part, config.Prices, error) {
	c.mu.Lock()
	prices := c.prices
	c.mu.Unlock()
	if c.prometheus == "" {
		return nil, prices, fmt.Errorf("read usage: start the console with --prometheus: %w", sharing.ErrNotFound)
	}
	parts, err := (promread.Source{URL: c.prometheus}).Usage(ctx, time.Now(), since, by)
	return parts, prices, err
}

// History implements Source. It needs a Prometheus.
func (c *Cluster) History(ctx context.Context, gpu string, since time.Duration) ([]Point, error) {
	if c.prometheus == "" {
		return nil, fmt.Errorf("read usage: start the console with --prometheus: %w", sharing.ErrNotFound)
	}
	read, err := (promread.Source{URL: c.prometheus}).GPU(ctx, gpu, time.Now(), since)
	if err != nil {
		return nil, err
	}
	out := make([]Point, 0, len(read))
	for _, p := range read {
		out = append(out, Point(p))
	}
	return out, nil
}

// mostEvents bounds the events of a pod.
const mostEvents = 100

// Events implements Source.
func (c *Cluster) Events(ctx context.Context, namespace, pod string) ([]Event, error) {
	read, err := survey.Events(ctx, c.api, namespace, pod)
	if err != nil {
		return nil, err
	}
	out := []Event{}
	for _, e := range read[max(0, len(read)-mostEvents):] {
		out = append(out, Event{Time: e.Last, Reason: e.Reason, Message: e.Message, From: e.From, Count: e.Count})
	}
	return out, nil
}

// Plan implements Source.
func (c *Cluster) Plan(ctx context.Context, after config.Config, files []config.File) (any, error) {
	data, err := survey.Config(ctx, c.api)
	if err != nil && !errors.Is(err, sharing.ErrNotFound) {
		return nil, err
	}
	found := survey.Cluster{Reports: map[string]json.RawMessage{}}
	c.mu.Lock()
	for name, n := range c.nodes {
		if n.Live.Report == nil {
			continue
		}
		found.Nodes = append(found.Nodes, survey.Node{Name: name, Labels: n.Labels})
		if found.Reports[name], err = json.Marshal(n.Live.Report); err != nil {
			break
		}
	}
	c.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("plan config: %w", err)
	}
	diff, x, err := configplan.New(after, files, found, data)
	if err != nil {
		return nil, err
	}
	p := configplan.Plan{Diff: diff, Nodes: []configplan.NodePlan{}}
	err = x.Nodes(&p)
	return p, err
}
