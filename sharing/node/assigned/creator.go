// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package assigned creates the MIG instances of ResourceClaims that Kerf's controller has assigned to the node, before
// kube-scheduler binds their pods. It then sets a condition of the claim, by which the scheduler binds the pod or tries
// other devices.
//
// Promised: a failure is in the status of a claim only after the API server has the taint of the GPU. Each allocation
// has one outcome: what the status says stays. An agent that starts again goes on from the status and from the GPUs. No
// claim gets a grant here.
package assigned

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/kerf-gpu/kerf/internal/sleep"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/dra"
)

// Node is what this package needs of the node runtime.
type Node interface {
	// Create creates the instance of a device, and holds it for the allocation until Release. It may be repeated.
	Create(ctx context.Context, a dra.Allocation, device string) error
	// Release ends what is held for an allocation.
	Release(a dra.Allocation)
	// GPUOf is the GPU of a device; false for an unknown device.
	GPUOf(device string) (sharing.GPUID, bool)
	// Announce reports a change of the taints to those who publish devices.
	Announce()
}

// API is what this package needs of the API server.
type API interface {
	// Outcome reads what the status of the claim says of an allocation.
	Outcome(ctx context.Context, a dra.Allocation) (dra.Outcome, error)
	// Report writes the outcome of an allocation: its instances exist if failure is nil. An earlier outcome stays.
	Report(ctx context.Context, a dra.Allocation, failure error) error
	// Tainted reports whether the published device has a taint, or is not published any more.
	Tainted(ctx context.Context, device string) (bool, error)
}

// Creator creates the instances of the assigned claims. New makes it; it is safe for concurrent use.
type Creator struct {
	log    *slog.Logger
	node   Node
	api    API
	taints taints
	kick   chan struct{}

	// mu guards what is wanted.
	mu     sync.Mutex
	wanted []dra.Allocation
}

// New returns a Creator without claims.
func New(log *slog.Logger, node Node, api API) *Creator {
	return &Creator{log: log, node: node, api: api, kick: make(chan struct{}, 1)}
}

// Want sets the allocations that the node is assigned, in place of those before. It returns at once.
func (c *Creator) Want(list []dra.Allocation) {
	c.mu.Lock()
	c.wanted = list
	c.mu.Unlock()
	c.wake()
}

// wake makes Run continue.
func (c *Creator) wake() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// Tainted reports whether a GPU is tainted, because it could not give an instance.
func (c *Creator) Tainted(gpu sharing.GPUID) bool { return c.taints.has(gpu, time.Now()) }

// Run works on the allocations until ctx ends.
func (c *Creator) Run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	running := map[string]context.CancelFunc{}
	for {
		wanted := c.snapshot()
		for key, end := range running {
			if _, still := wanted[key]; !still {
				end()
				delete(running, key)
			}
		}
		for key, a := range wanted {
			if running[key] == nil {
				work, end := context.WithCancel(ctx)
				running[key] = end
				all.Go(func() { c.follow(work, a) })
			}
		}
		if !c.await(ctx) {
			for _, end := range running {
				end()
			}
			return
		}
	}
}

// await waits until wake or the end of a taint. First it has the node publish the taints that have ended by now. It
// returns false if ctx ended.
func (c *Creator) await(ctx context.Context) bool {
	ended, next := c.taints.expire(time.Now())
	if ended {
		c.node.Announce()
	}
	var expired <-chan time.Time
	if next > 0 {
		t := time.NewTimer(next)
		defer t.Stop()
		expired = t.C
	}
	select {
	case <-ctx.Done():
		return false
	case <-c.kick:
	case <-expired:
	}
	return true
}

func (c *Creator) snapshot() map[string]dra.Allocation {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]dra.Allocation{}
	for _, a := range c.wanted {
		out[a.Key()] = a
	}
	return out
}

// follow works on an allocation until it is not assigned any more. Its instances are held that long, unless their
// creation has failed.
func (c *Creator) follow(ctx context.Context, a dra.Allocation) {
	defer c.node.Release(a)
	var p progress
	for ctx.Err() == nil {
		s, wait := p.next(time.Now())
		switch {
		case s != stepNone:
			p = c.carryOut(ctx, a, s, p)
		case wait > 0:
			sleep.For(ctx, wait)
		default:
			<-ctx.Done()
		}
	}
}

// carryOut takes one step.
func (c *Creator) carryOut(ctx context.Context, a dra.Allocation, s step, p progress) progress {
	var err error
	switch s {
	case stepNone:
	case stepRead:
		var is dra.Outcome
		is, err = c.api.Outcome(ctx, a)
		p.read, p.ready, p.done = err == nil, is == dra.OutcomeReady, is == dra.OutcomeOver
	case stepCreate:
		return c.create(ctx, a, p)
	case stepTaint:
		c.node.Release(a)
		p.tainted, err = c.taint(ctx, p.device)
		if err == nil && !p.tainted {
			p.pause = 0 // The publication takes a moment.
			return p.later(time.Now())
		}
	case stepReady:
		err = c.api.Report(ctx, a, nil)
		p.done = err == nil
	case stepFailed:
		err = c.api.Report(ctx, a, p.failure)
		p.done = err == nil
	}
	if err != nil {
		if ctx.Err() == nil {
			c.log.Warn("failed to conclude assigned claim, will retry", "claim", a.Namespace+"/"+a.Name, "error", err)
		}
		return p.later(time.Now())
	}
	return p.forward()
}

// create creates the instances of an allocation. It stops at the first that cannot be created.
func (c *Creator) create(ctx context.Context, a dra.Allocation, p progress) progress {
	began := time.Now()
	for _, device := range a.Devices {
		err := c.node.Create(ctx, a, device)
		if err != nil {
			if ctx.Err() == nil {
				c.log.Warn("failed to create MIG instance of assigned claim", "claim", a.Namespace+"/"+a.Name, "device",
					device, "error", err)
			}
			return p.attempted(device, err, began, time.Now())
		}
		if gpu, ok := c.node.GPUOf(device); ok && c.taints.clear(gpu, time.Now()) {
			c.node.Announce()
		}
	}
	c.log.Info("created MIG instances of assigned claim", "claim", a.Namespace+"/"+a.Name, "devices", a.Devices)
	return p.attempted("", nil, began, time.Now())
}

// taint taints the GPU of a device, and reports whether the API server has the taint.
func (c *Creator) taint(ctx context.Context, device string) (bool, error) {
	gpu, ok := c.node.GPUOf(device)
	if ok && c.taints.set(gpu, time.Now()) {
		c.wake() // Run waits for the end of the taint.
		c.node.Announce()
	}
	return c.api.Tainted(ctx, device)
}
