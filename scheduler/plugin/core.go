// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kerf-gpu/kerf/scheduler/rules"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

// core is what the plugins of all profiles of one scheduler have in common: there is one cluster.
type core struct {
	now func() time.Time
	// rules has the agents' config. It has a separate lock, and calls the cluster state with it locked.
	rules *rules.Rules
	// lost are the pods that faults end.
	lost *losses
	// pacer writes the events of placements.
	pacer *pacer
	// beforeBinding is called before each Binding; nil: nothing is. It is set before the first pod is scheduled.
	beforeBinding func(ctx context.Context, pod *corev1.Pod)

	// mu guards what follows. The cluster state is queried for many nodes at once.
	mu    sync.Mutex
	state *scheduler.ClusterState
	// waiting are the pods that did not fit.
	waiting *waiters

	// cancel ends the background goroutines, which running waits for.
	cancel  context.CancelFunc
	running sync.WaitGroup
	// synced reports whether the cluster state has the API server's initial objects.
	synced []func() bool
}

func newCore(now func() time.Time, register rules.Register) (*core, error) {
	c := &core{now: now, state: scheduler.New(), pacer: newPacer(), lost: newLosses(now)}
	c.waiting = newWaiters(now, func(w scheduler.PodRequest, node string) bool {
		return c.state.Fit(w, node, now()).Reason == scheduler.Fits
	})
	var err error
	c.rules, err = rules.New(func(is config.Config) {
		c.mu.Lock()
		c.state.Configure(is)
		c.mu.Unlock()
	}, register)
	return c, err
}

// repeat calls look at each interval until ctx ends. The first call is one interval after the start.
func repeat(ctx context.Context, every time.Duration, look func(context.Context)) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			look(ctx)
		}
	}
}

// Close ends the background goroutines and waits for them.
func (c *core) Close() error {
	if c.cancel != nil {
		c.cancel()
	}
	c.running.Wait()
	c.rules.Wait()
	return nil
}

// errStart is why nothing is decided yet.
var errStart = errors.New("what the cluster has is not read yet")

// ready is an error until the cluster state has the API server's initial objects, because a missing pod's GPUs would
// be assigned twice. It is also an error while rules are required and unknown.
func (c *core) ready() error {
	if !c.listed() {
		return errStart
	}
	return c.rules.Err()
}

// listed reports whether the cluster state has the API server's initial objects.
func (c *core) listed() bool {
	for _, synced := range c.synced {
		if !synced() {
			return false
		}
	}
	return true
}
