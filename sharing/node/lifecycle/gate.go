// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// gateWidth is how many cgroups get their caps at once. The driver answers one question about a GPU at a time, so
	// that more would only take turns with each other, and all of them would be ready as late as the last.
	gateWidth = 2
	// gateTime is how long one keeps its place while others wait: a GPU that answers slowly must hold up its own only.
	gateTime = 10 * time.Millisecond
)

// gate lets callers in as they come, so many at once.
type gate struct {
	places chan struct{}
	time   time.Duration
}

func newGate(width int, keep time.Duration) *gate {
	return &gate{places: make(chan struct{}, width), time: keep}
}

// enter waits for a place, and returns the function that gives it up, which may be called late: the place is given up
// by itself after the gate's time. An error means that ctx ended before; it wraps sharing.ErrUnavailable.
func (g *gate) enter(ctx context.Context) (leave func(), err error) {
	select {
	case g.places <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for caps that are being set: %w (%w)", context.Cause(ctx), sharing.ErrUnavailable)
	}
	free := sync.OnceFunc(func() { <-g.places })
	t := time.AfterFunc(g.time, free)
	return func() {
		t.Stop()
		free()
	}, nil
}
