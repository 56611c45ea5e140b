// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"time"

	"github.com/kerf-gpu/kerf/sim/model"
	"github.com/kerf-gpu/kerf/sim/wire"
)

const maxWait = time.Minute

// system answers on nvidiactl.
func (c *device) system(ctx context.Context, req wire.Request) (wire.Response, error) {
	switch req.Op {
	case wire.OpSystem:
		drv := c.d.opts.Driver
		return wire.Response{
			Vals: []uint64{drv.CUDA, drv.Major, uint64(len(c.d.uuids))},
			Text: drv.Version + "\n" + drv.NVML,
		}, nil
	case wire.OpWaitEvent:
		return c.waitEvent(ctx, req)
	default:
		return wire.Response{}, wire.Invalid
	}
}

// waitEvent blocks until there is an event, the time is over, or the connection ends.
func (c *device) waitEvent(ctx context.Context, req wire.Request) (wire.Response, error) {
	timeout := min(req.Args[0], uint64(maxWait/time.Millisecond))
	timer := time.NewTimer(time.Duration(timeout) * time.Millisecond) // #nosec G115 -- at most a minute
	defer timer.Stop()
	for {
		ev, changed, ok := c.nextEvent(req.Args[1], req.Args[2])
		if ok {
			// #nosec G115 -- an index
			return wire.Response{Vals: []uint64{uint64(ev.GPU), ev.Type, ev.Data, ev.GI, ev.CI}}, nil
		}
		select {
		case <-changed:
		case <-timer.C:
			return wire.Response{}, wire.Timeout
		case <-ctx.Done():
			return wire.Response{}, wire.Timeout // no process reads it
		}
	}
}

func (c *device) nextEvent(gpus, types uint64) (model.Event, <-chan struct{}, bool) {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	ev, next, ok := c.d.model.Next(c.cursor, gpus, types)
	c.cursor = next
	return ev, c.d.changed, ok
}
