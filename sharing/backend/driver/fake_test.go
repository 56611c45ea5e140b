// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	"github.com/kerf-gpu/kerf/internal/nvml"
	"github.com/kerf-gpu/kerf/sharing"
)

const dir = "/sys/fs/cgroup/kerf/job"

// fakeNVML is a driver that keeps limits and misbehaves on demand.
type fakeNVML struct {
	absent bool
	mu     sync.Mutex            // guards limits and calls
	limits map[string]nvml.Limit // by GPU and directory
	calls  []string
	// round changes a hard limit on its way in.
	round func(sharing.Bytes) sharing.Bytes
	// setErr and getErr are asked before each call; did is false for calls that take effect all the same.
	setErr func(gpu sharing.GPUID, hard sharing.Bytes) error
	getErr func(gpu sharing.GPUID) error
	// none is what the driver says where there is no limit; nil: as nvml.h has it.
	none error
	// failsAfter makes a failing set take effect.
	failsAfter bool
}

func newFakeNVML() *fakeNVML { return &fakeNVML{limits: map[string]nvml.Limit{}} }

func (d *fakeNVML) HasMemoryLimits() bool { return !d.absent }

func (d *fakeNVML) SetMemoryLimit(ctx context.Context, gpu sharing.GPUID, dir string, soft, hard sharing.Bytes) error {
	d.mu.Lock()
	d.calls = append(d.calls, fmt.Sprintf("set %s %s %d %s", gpu, dir, soft, size(hard)))
	d.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w (%w)", err, sharing.ErrUnavailable)
	}
	var err error
	if d.setErr != nil {
		err = d.setErr(gpu, hard)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil || d.failsAfter {
		if d.round != nil && hard != nvml.NoLimit {
			hard = d.round(hard)
		}
		d.limits[string(gpu)+dir] = nvml.Limit{Soft: soft, Hard: hard}
		if hard == nvml.NoLimit && soft == 0 {
			delete(d.limits, string(gpu)+dir)
		}
	}
	return err
}

func (d *fakeNVML) PutMemoryLimit(ctx context.Context, gpu sharing.GPUID, dir string, soft, hard sharing.Bytes) (
	nvml.Limit, error) {
	if err := d.SetMemoryLimit(ctx, gpu, dir, soft, hard); err != nil {
		return nvml.Limit{}, err
	}
	got, err := d.MemoryLimit(ctx, gpu, dir)
	if err != nil {
		return nvml.Limit{}, fmt.Errorf("read back: %w", err)
	}
	return got, nil
}

func (d *fakeNVML) MemoryLimit(_ context.Context, gpu sharing.GPUID, dir string) (nvml.Limit, error) {
	if d.getErr != nil {
		if err := d.getErr(gpu); err != nil {
			return nvml.Limit{}, err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	l, ok := d.limits[string(gpu)+dir]
	if !ok {
		return l, cmp.Or(d.none, fmt.Errorf("no limit: %w", sharing.ErrNotFound))
	}
	return l, nil
}

func size(b sharing.Bytes) string {
	if b == nvml.NoLimit {
		return "none"
	}
	return fmt.Sprint(uint64(b))
}

// tree is cgroup v2 in which dir exists until it is gone.
type tree struct {
	gone       bool
	checkErr   error
	scratchErr error
	removeErr  error
	scratches  int
	removed    int
}

func (t *tree) Check(string) error {
	if t.gone {
		return fmt.Errorf("no such cgroup: %w", sharing.ErrNotFound)
	}
	return t.checkErr
}

func (t *tree) Scratch() (string, func() error, error) {
	if t.scratchErr != nil {
		return "", nil, t.scratchErr
	}
	t.scratches++
	return "/sys/fs/cgroup/probe", func() error { t.removed++; return t.removeErr }, nil
}
