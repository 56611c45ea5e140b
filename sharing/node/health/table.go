// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package health knows the health of a node's GPUs and MIG instances, and carries out what a fault demands.
package health

import (
	"maps"
	"sync"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/node/instances"
)

// State is the health of a GPU or MIG instance.
type State struct {
	Health sharing.Health
	Reason string
}

// Table is the health of each GPU and MIG instance. Its lock is innermost: its methods may be called with any other
// lock held.
type Table struct {
	mu       sync.Mutex
	observed map[sharing.GPURef]State
	// unusable says why a healthy GPU must not be used.
	unusable map[sharing.GPUID]string
	faults   instances.Faults
}

// NewTable returns an empty table.
func NewTable() *Table { return &Table{observed: map[sharing.GPURef]State{}} }

// Observe takes what the health watch observed of GPUs.
func (t *Table) Observe(s State, gpus ...sharing.GPURef) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, gpu := range gpus {
		t.observed[gpu] = s
	}
}

// Add gives a shared MIG instance without health that of its GPU.
func (t *Table) Add(id sharing.GPURef) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.observed[id]; !known {
		t.observed[id] = t.observed[id.Device()]
	}
}

// SetUnusable sets which GPUs must not be used although they are healthy, and why. It reports whether that is a change.
func (t *Table) SetUnusable(why map[sharing.GPUID]string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if maps.Equal(t.unusable, why) {
		return false
	}
	t.unusable = maps.Clone(why)
	return true
}

// SetInstance sets the health of a MIG instance. Its fault leaves the rest of its GPU alone.
func (t *Table) SetInstance(gpu sharing.GPUID, in sharing.Instance, s State) {
	t.mu.Lock()
	defer t.mu.Unlock()
	id := in.On(gpu)
	t.faults = t.faults.With(instances.Fault{GPU: gpu, Instance: in, Health: s.Health, Reason: s.Reason})
	if _, shared := t.observed[id]; shared {
		t.observed[id] = t.observed[id.Device()]
	}
}

// All is the health of each GPU that was observed, and of each shared MIG instance.
func (t *Table) All() map[sharing.GPURef]State {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := map[sharing.GPURef]State{}
	for gpu, s := range t.observed {
		if f, is := t.faults.Of(sharing.Share{GPU: gpu}); is && s.Health == sharing.HealthOK {
			s = State{f.Health, f.Reason}
		}
		if why := t.unusable[gpu.UUID]; s.Health == sharing.HealthOK && why != "" {
			s = State{sharing.HealthUnhealthy, why}
		}
		out[gpu] = s
	}
	return out
}

// instances are the faults of MIG instances. No method changes what it returns.
func (t *Table) instances() instances.Faults {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.faults
}

// Fault is the fault of the MIG instance of a share, if it has one.
func (t *Table) Fault(f sharing.Share) (instances.Fault, bool) { return t.instances().Of(f) }

// Unavailable are the MIG instances of a GPU that no grant can have, because of a fault.
func (t *Table) Unavailable(gpu sharing.GPUID) []mig.Granted { return t.instances().On(gpu) }
