// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package gpudriver is the driver as the node runtime uses it: what it reads, what limits it sets, and which one
// answers now.
package gpudriver

import (
	"context"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/choice"
	"github.com/kerf-gpu/kerf/sharing/lists"
	"github.com/kerf-gpu/kerf/sharing/node/observe"
)

// Reader is what the runtime reads from the driver.
type Reader interface {
	// Version is the driver's version string.
	Version() string
	// Sample reads one GPU's use, without its processes. An error wraps sharing.ErrLost or sharing.ErrUnavailable.
	Sample(ctx context.Context, gpu sharing.GPURef) (Sample, error)
	// ProcessTime is what part of the time since then each process used of one GPU, as far as the driver's samples
	// tell. Errors are those of Sample, and sharing.ErrUnsupported where the driver does not tell.
	ProcessTime(ctx context.Context, gpu sharing.GPURef, since time.Time) (sharing.TimeUse, error)
	// Power is what the whole GPU takes now, in watts. Errors are those of Sample, and sharing.ErrUnsupported.
	Power(ctx context.Context, gpu sharing.GPURef) (watts float64, err error)
	// Processes lists those that hold memory of one GPU, each once. Errors are those of Sample.
	Processes(ctx context.Context, gpu sharing.GPURef) ([]ProcessUse, error)
}

// Sample is one GPU's usage at one moment.
type Sample = observe.Reading

// ProcessUse is one process on one GPU. Known is false when the driver does not tell its memory.
type ProcessUse = lists.Use

// Capper sets caps. All methods honor the context's deadline.
type Capper interface {
	// Apply limits the cgroup to each share's memory on the share's GPU, and to the least on every GPU of others. It
	// reads each limit back. On error no limit stays set. Whole GPUs get no limit.
	Apply(ctx context.Context, dir string, own []sharing.Share, others []sharing.GPURef) error
	// Renew is Apply for a cgroup whose processes may run: on error all limits stay as they were.
	Renew(ctx context.Context, dir string, own []sharing.Share, others []sharing.GPURef) error
	// Read returns the limit that the driver enforces, and the usage. It returns ErrNotFound if the cgroup has no limit
	// on that GPU.
	Read(ctx context.Context, dir string, gpu sharing.GPURef) (limit, used sharing.Bytes, err error)
	// Clear takes every limit off; a cgroup or GPU that is gone is no error.
	Clear(ctx context.Context, dir string, gpus []sharing.GPURef) error
	// Least is the limit that Apply gives to others.
	Least() sharing.Bytes
}

// Attached is a driver that answers, with what was found on it.
type Attached struct {
	Driver Reader
	// CUDAVersion is the newest CUDA version that the driver supports, such as "13.0"; empty if not known.
	CUDAVersion string
	// Caps is nil when the driver cannot limit memory.
	Caps Capper
	// GPUs are as the driver shows them. The settings say what can be granted of each.
	GPUs []sharing.GPU
	// Levels has an entry for each GPU: what holds shares of it, and what does not and why.
	Levels map[sharing.GPURef]choice.Report
	// LeftOut are the devices that were not taken into the inventory, one sentence each.
	LeftOut []string
}

// Current is the driver that answers now. The zero value has none. It is safe for concurrent use.
type Current struct {
	now  atomic.Pointer[Attached]
	seen atomic.Bool
}

// Get returns the driver that answers now; nil for none. The caller changes nothing of it.
func (c *Current) Get() *Attached { return c.now.Load() }

// Set takes another driver in the place of the one before; nil for none.
func (c *Current) Set(a *Attached) { c.now.Store(a) }

// Amend replaces the driver that answers now by a copy with changes. It reports whether there is one. One caller at a
// time uses Set and Amend.
func (c *Current) Amend(change func(*Attached)) bool {
	now := c.now.Load()
	if now == nil {
		return false
	}
	a := *now
	a.Levels = maps.Clone(a.Levels)
	change(&a)
	c.now.Store(&a)
	return true
}

// Settled tells that a driver answers whose caps were verified. From then on Seen is true.
func (c *Current) Settled() { c.seen.Store(true) }

// Seen reports whether a driver has ever answered. Without an answer, an empty cgroup may still be charged. A driver
// that went away later took all memory with it.
func (c *Current) Seen() bool { return c.seen.Load() }

// MustGet is Get for who needs one. The error wraps sharing.ErrUnavailable.
func (c *Current) MustGet() (*Attached, error) {
	if a := c.now.Load(); a != nil {
		return a, nil
	}
	return nil, fmt.Errorf("no driver answers: %w", sharing.ErrUnavailable)
}
