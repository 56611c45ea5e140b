// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/internal/kube/access"
	"github.com/kerf-gpu/kerf/internal/present"
	"github.com/kerf-gpu/kerf/sharing"
)

// clusterWatch is the time between two pictures of a watched cluster.
const clusterWatch = 2 * time.Second

// clusterStatus is kerf status of a cluster.
func (a *app) clusterStatus(c *cobra.Command, o *statusOptions) error {
	if c.Flags().Changed("wait") || c.Flags().Changed("timeout") {
		return misused(sharing.Invalid("--wait", o.wait, "use kubectl wait, or ask one node's agent with --dir", "is for the agent of one machine"))
	}
	if o.watch {
		return a.clusterStatusWatch(c.Context(), o)
	}
	return fail(a.withCluster(c.Context(), func(ctx context.Context, api *access.Client) error {
		text, err := a.clusterPicture(ctx, api, o)
		if err == nil {
			_, err = a.out.Write(text)
		}
		return err
	}))
}

func (a *app) clusterPicture(ctx context.Context, api *access.Client, o *statusOptions) ([]byte, error) {
	p, err := reported(ctx, api, time.Now())
	if err != nil {
		return nil, err
	}
	return a.formed(o.output, p.Filter(a.overrides.Context.Namespace), present.ClusterTable)
}

// formed renders a picture of a cluster: as a document for scripts, or by table for people.
func (a *app) formed(output string, p present.Cluster, table func(present.Cluster, present.Options) string) ([]byte, error) {
	switch output {
	case "json":
		return present.JSON(p, true)
	case "yaml":
		return present.YAML(p)
	}
	return []byte(table(p, present.Options{Color: a.colors(), Wide: output == "wide"})), nil
}

// clusterStatusWatch shows pictures until it is interrupted, in place on a terminal. What cannot be read is said, and tried
// again.
func (a *app) clusterStatusWatch(parent context.Context, o *statusOptions) error {
	api, err := a.cluster()
	if err != nil {
		return fail(err)
	}
	defer api.Close()
	return interruptible(parent, func(ctx context.Context) error {
		_, _, terminal := a.screen()
		draw := terminal && o.output != "json" && o.output != "yaml"
		if draw {
			_, _ = fmt.Fprint(a.out, enterScreen)
			defer func() { _, _ = fmt.Fprint(a.out, leaveScreen) }()
		}
		tick := time.NewTicker(clusterWatch)
		defer tick.Stop()
		for {
			text, err := a.clusterPicture(ctx, api, o)
			switch {
			case ctx.Err() != nil:
			case errors.Is(err, sharing.ErrDenied) || errors.Is(err, sharing.ErrNotFound):
				return fail(err)
			case err != nil:
				_, _ = fmt.Fprintf(a.errOut, "%s status: %v\n", a.name(), err)
			case draw:
				err = a.draw(text)
			default:
				_, err = a.out.Write(append(text, '\n'))
			}
			if err != nil && !errors.Is(err, sharing.ErrUnavailable) && ctx.Err() == nil {
				return fail(err)
			}
			select {
			case <-ctx.Done():
				return nil // ctrl-C is how a watch ends
			case <-tick.C:
			}
		}
	})
}
