// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package source brings the state of a cluster, or of one machine, to the console's hub.
//
// A cluster is read through the API server with lists and watches, a machine through the agent's socket. The package
// promises that what cannot be read is said, and that the last known state stays. It writes nothing anywhere.
package source

import (
	"context"
	"time"

	"github.com/kerf-gpu/kerf/internal/console/stream"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/usage"
)

// Source is where the console's data comes from. Errors that wrap sharing.ErrNotFound mean that there is no such data.
type Source interface {
	// Run tells the hub of the state until ctx ends.
	Run(ctx context.Context, hub *stream.Broadcaster) error
	// Usage is what grants used since then, grouped by nothing yet, and the prices.
	Usage(ctx context.Context, since time.Duration, by []string) ([]usage.Part, config.Prices, error)
	// History is the measured usage of a GPU over time.
	History(ctx context.Context, gpu string, since time.Duration) ([]Point, error)
	// Events are those of a pod.
	Events(ctx context.Context, namespace, pod string) ([]Event, error)
	// Plan compares a config, which was read from files, with what is applied.
	Plan(ctx context.Context, c config.Config, files []config.File) (any, error)
}

// Point is the usage of a GPU at a moment. Memory is in bytes, Utilization in percent; nil is unknown.
type Point struct {
	Time        time.Time `json:"time"`
	Memory      *float64  `json:"memory,omitempty"`
	Utilization *float64  `json:"utilization,omitempty"`
}

// Event is an event of a pod.
type Event struct {
	Time    time.Time `json:"time"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	From    string    `json:"from,omitempty"`
	Count   int32     `json:"count"`
}

// flushEvery is the shortest time between two states that viewers see.
const flushEvery = time.Second

// flush makes changes visible every second until ctx ends.
func flush(ctx context.Context, hub *stream.Broadcaster) {
	t := time.NewTicker(flushEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			hub.Flush()
		}
	}
}
