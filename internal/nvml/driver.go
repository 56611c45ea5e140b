// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"

	"github.com/kerf-gpu/kerf/sharing"
)

// driver lets calls into an initialised NVML: one at a time for each GPU, and none after its end. It knows the handles
// of the GPUs.
type driver struct {
	opts       Options
	adapter    adapter
	systemLane *lane
	calls      sync.WaitGroup // every call in the driver

	mu     sync.Mutex
	closed bool
	slots  map[int]*lane           // by NVML index, for GPUs that are not known yet
	lanes  map[sharing.GPUID]*lane // a known GPU's lane is its slot's
	known  map[sharing.GPUID]device
}

func newDriver(d adapter, opts Options) *driver {
	return &driver{
		opts: opts, adapter: d, systemLane: newLane("the driver", opts.HangAfter),
		slots: map[int]*lane{}, lanes: map[sharing.GPUID]*lane{}, known: map[sharing.GPUID]device{},
	}
}

// end lets no more calls in; false where that was so before.
func (d *driver) end() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	was := d.closed
	d.closed = true
	return !was
}

// begin notes one more call, unless the library is closed.
func (d *driver) begin() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return fmt.Errorf("nvml is closed: %w", sharing.ErrUnavailable)
	}
	d.calls.Add(1)
	return nil
}

// call runs fn in the lane, with the library's timeout besides the context.
func call[T any](ctx context.Context, d *driver, way *lane, fn func() (T, error)) (T, error) {
	if err := d.begin(); err != nil {
		var zero T
		return zero, err
	}
	ctx, cancel := context.WithTimeout(ctx, d.opts.CallTimeout)
	defer cancel()
	return in(ctx, way, d.calls.Done, fn)
}

// onGPU runs fn with the GPU's handle in its lane.
func onGPU[T any](ctx context.Context, d *driver, what string, id sharing.GPUID, fn func(device) (T, error)) (T,
	error) {
	v, err := call(ctx, d, d.laneOf(id), func() (T, error) {
		dev, err := d.handle(id)
		if err != nil {
			var zero T
			return zero, err
		}
		return fn(dev)
	})
	if err != nil {
		return v, fmt.Errorf("%s of gpu %q: %w", what, string(id), err)
	}
	return v, nil
}

// change is onGPU for a call that changes the GPU. Every such call but the memory limit goes through it.
func change[T any](ctx context.Context, d *driver, what string, id sharing.GPUID, fn func(device) (T, error)) (T,
	error) {
	if d.opts.ReadOnly {
		var zero T
		return zero, fmt.Errorf("gpu %q: %w", string(id), &sharing.ReadOnlyError{Change: what})
	}
	return onGPU(ctx, d, what, id, fn)
}

// handle returns the handle of id. A handle stays good until the library is closed, also when the GPU is
// lost: it then answers so.
func (d *driver) handle(id sharing.GPUID) (device, error) {
	d.mu.Lock()
	dev := d.known[id]
	d.mu.Unlock()
	if dev != nil {
		return dev, nil
	}
	if err := checkUUID(id); err != nil {
		return nil, err
	}
	dev, err := d.adapter.byUUID(id)
	if errors.Is(err, sharing.ErrInvalid) {
		err = fmt.Errorf("%w (%w)", err, sharing.ErrNotFound) // well formed, and the driver does not take it
	}
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known[id] = dev
	return dev, nil
}

func (d *driver) laneOf(id sharing.GPUID) *lane {
	d.mu.Lock()
	defer d.mu.Unlock()
	way := d.lanes[id]
	if way == nil {
		if checkUUID(id) != nil {
			// Not worth remembering: handle refuses it without a call.
			return newLane("no gpu", d.opts.HangAfter)
		}
		way = newLane(fmt.Sprintf("gpu %q", string(id)), d.opts.HangAfter)
		d.lanes[id] = way
	}
	return way
}

// checkUUID refuses what cannot be a GPU's UUID: NVML's are "GPU-" and hexadecimal groups. MIG instances have
// other names and are never meant here.
func checkUUID(id sharing.GPUID) error {
	s, ok := strings.CutPrefix(string(id), "GPU-")
	bad := func(r rune) bool { return !strings.ContainsRune("0123456789abcdefABCDEF-", r) }
	if !ok || s == "" || len(s) > 64 || strings.ContainsFunc(s, bad) {
		return sharing.Invalid("gpu", string(id), "write a UUID as nvidia-smi -L shows it, such as GPU-0123abcd-...",
			"is not a GPU's UUID")
	}
	return nil
}

// slot returns the lane of the GPU at an index. Once the GPU is known, it has one lane under both names.
func (d *driver) slot(i int) *lane {
	d.mu.Lock()
	defer d.mu.Unlock()
	way := d.slots[i]
	if way == nil {
		way = newLane(fmt.Sprintf("gpu at index %d", i), d.opts.HangAfter)
		d.slots[i] = way
	}
	return way
}

// learn remembers a GPU that answered. The caller runs in the slot's lane.
func (d *driver) learn(i int, id sharing.GPUID, dev device) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known[id] = dev
	if way := d.lanes[id]; way == nil {
		d.lanes[id] = d.slots[i]
	} else {
		d.slots[i] = way
	}
}

// lastAt returns the GPU that answered at index i before, or "".
func (d *driver) lastAt(i int) sharing.GPUID {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, way := range d.lanes {
		if way == d.slots[i] && d.known[id] != nil {
			return id
		}
	}
	return ""
}

// handles returns the GPUs that are known.
func (d *driver) handles() map[sharing.GPUID]device {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.known)
}
