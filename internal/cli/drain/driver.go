// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/internal/cli/command"
)

// drainDriver has agent and monitor of a node release the NVIDIA driver.
func drainDriver(parent context.Context, a *command.App, o *task, node string) error {
	if err := o.check(); err != nil {
		return command.Misused(err)
	}
	return withNode(parent, a, o, node, func(ctx context.Context, d *draining) error {
		mark := &gpunode.DriverDrain{Reason: o.reason, Since: time.Now().UTC().Format(time.RFC3339),
			By: command.UserName(uint32(os.Getuid()))} //nolint:gosec // a user id is one
		if err := d.mark(ctx, func(s gpunode.Spec) gpunode.Spec { return s.Draining(mark) }); err != nil {
			return err
		}
		if o.timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, o.timeout)
			defer cancel()
		}
		if err := d.wait(ctx); err != nil {
			return err
		}
		return d.answer(a, "drained", "is released: its modules can be unloaded; to use it again: "+a.Name()+
			" uncordon --driver "+node)
	})
}

// useDriver ends the drain of a node's driver.
func useDriver(parent context.Context, a *command.App, o *task, node string) error {
	if err := command.CheckOutput(o.output); err != nil {
		return command.Misused(err)
	}
	return withNode(parent, a, o, node, func(ctx context.Context, d *draining) error {
		if err := d.mark(ctx, func(s gpunode.Spec) gpunode.Spec { return s.Draining(nil) }); err != nil {
			return err
		}
		return d.answer(a, "uncordoned", "is in use again, and its GPUs take new grants")
	})
}

// withNode finds the GPUNode and runs f for its driver until an interrupt.
func withNode(parent context.Context, a *command.App, o *task, node string,
	f func(context.Context, *draining) error) error {
	api, err := a.Cluster()
	if err != nil {
		return command.Fail(err)
	}
	defer api.Close()
	d := &draining{api: api, task: o, tell: a.ErrOut, said: map[string]bool{}, node: node, name: node,
		what: "NVIDIA driver of " + node}
	return command.Interruptible(parent, func(ctx context.Context) error {
		var found gpunode.Object
		if err := api.Get(ctx, d.path(), nil, &found); err != nil {
			return command.Fail(fmt.Errorf("read gpunode %s: %w", node, err))
		}
		return command.Fail(f(ctx, d))
	})
}
