// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"fmt"
	"sync"

	"github.com/kerf-gpu/kerf/sharing"
)

// gate keeps this agent's own calls off a GPU while its MIG instances are changed. To the driver, an instance with an
// open handle is in use.
type gate struct {
	mu sync.Mutex
	// inside counts the calls on a GPU. The GPUs that are closed are in shut, each with a channel that is closed once
	// the last call is out.
	inside map[sharing.GPUID]int
	shut   map[sharing.GPUID]chan struct{}
}

func newGate() *gate {
	return &gate{inside: map[sharing.GPUID]int{}, shut: map[sharing.GPUID]chan struct{}{}}
}

// enter begins a call on the GPU; leave ends it. The error wraps sharing.ErrUnavailable while the GPU is closed.
func (g *gate) enter(gpu sharing.GPUID) (leave func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut[gpu] != nil {
		return nil, fmt.Errorf("the MIG instances of gpu %q are being changed: %w", string(gpu), sharing.ErrUnavailable)
	}
	g.inside[gpu]++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.inside[gpu]--
		if out := g.shut[gpu]; out != nil && g.inside[gpu] == 0 {
			close(out)
		}
	}, nil
}

// close waits until no call is on the GPU, and lets none in until resume is called.
func (g *gate) close(ctx context.Context, gpu sharing.GPUID) (resume func(), err error) {
	g.mu.Lock()
	if g.shut[gpu] != nil {
		g.mu.Unlock()
		return nil, fmt.Errorf("the MIG instances of gpu %q are being changed already: %w", string(gpu),
			sharing.ErrUnavailable)
	}
	out := make(chan struct{})
	g.shut[gpu] = out
	if g.inside[gpu] == 0 {
		close(out)
	}
	g.mu.Unlock()
	resume = func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.shut, gpu)
	}
	select {
	case <-out:
		return resume, nil
	case <-ctx.Done():
		resume()
		return nil, fmt.Errorf("wait for calls on gpu %q: %w (%w)", string(gpu), ctx.Err(), sharing.ErrUnavailable)
	}
}
