// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/kube/access"
	"github.com/kerf-gpu/kerf/internal/present"
	"github.com/kerf-gpu/kerf/sharing"
)

// clusterStatus is kerf status of a cluster.
func clusterStatus(a *command.App, c *cobra.Command, o *statusOptions) error {
	if c.Flags().Changed("wait") || c.Flags().Changed("timeout") {
		return command.Misused(sharing.Invalid("--wait", o.wait,
			"use kubectl wait, or ask one node's agent with --run-dir",
			"is for the agent of one machine"))
	}
	if err := o.Reject("a cluster", "bars"); err != nil {
		return command.Misused(err)
	}
	if o.watch {
		return clusterStatusWatch(c.Context(), a, o)
	}
	return command.Fail(a.WithCluster(c.Context(), func(ctx context.Context, api *access.Client) error {
		text, err := clusterPicture(ctx, a, api, o)
		if err == nil {
			_, err = a.Out.Write(text)
		}
		return err
	}))
}

func clusterPicture(ctx context.Context, a *command.App, api *access.Client, o *statusOptions) ([]byte, error) {
	p, err := command.Reported(ctx, api, time.Now())
	if err != nil {
		return nil, err
	}
	if o.Wide() || o.Script() {
		if err := command.NameClaims(ctx, api, &p); err != nil {
			return nil, err
		}
	}
	keep, err := o.Pods(ctx, api, a.Overrides.Context.Namespace)
	if err != nil {
		return nil, err
	}
	if a.Overrides.Context.Namespace != "" || o.Selector != "" {
		p = p.Filter(keep)
	}
	return a.RenderCluster(&o.Listing, p, present.ClusterTable)
}

// clusterStatusWatch shows pictures until it is interrupted, in place on a terminal. What cannot be read is said, and
// tried again.
func clusterStatusWatch(parent context.Context, a *command.App, o *statusOptions) error {
	api, err := a.Cluster()
	if err != nil {
		return command.Fail(err)
	}
	defer api.Close()
	return command.Interruptible(parent, func(ctx context.Context) error {
		_, _, terminal := a.Screen()
		draw := terminal && !o.Script()
		if draw {
			_, _ = fmt.Fprint(a.Out, command.EnterScreen)
			defer func() { _, _ = fmt.Fprint(a.Out, command.LeaveScreen) }()
		}
		tick := time.NewTicker(clusterWatch)
		defer tick.Stop()
		for {
			text, err := clusterPicture(ctx, a, api, o)
			switch {
			case ctx.Err() != nil:
			case errors.Is(err, sharing.ErrDenied) || errors.Is(err, sharing.ErrNotFound):
				return command.Fail(err)
			case err != nil:
				_, _ = fmt.Fprintf(a.ErrOut, "%s status: %v\n", a.Name(), err)
			case draw:
				err = a.Draw(text)
			default:
				_, err = a.Out.Write(append(text, '\n'))
			}
			if err != nil && !errors.Is(err, sharing.ErrUnavailable) && ctx.Err() == nil {
				return command.Fail(err)
			}
			select {
			case <-ctx.Done():
				return nil // ctrl-C is how a watch ends
			case <-tick.C:
			}
		}
	})
}
