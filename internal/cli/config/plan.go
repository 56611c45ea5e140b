// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/configplan"
	"github.com/kerf-gpu/kerf/internal/kube/survey"
	"github.com/kerf-gpu/kerf/sharing"
)

// The exit statuses of config diff are those of diff and kubectl diff: 1 for differences, 2 for errors.
const (
	exitDiffers = 1
	exitTrouble = 2
)

func configDiffCommand(a *command.App) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "diff FILE...",
		Short: "Show the differences between a SharingConfig and the cluster's",
		Long: `Compare a SharingConfig with the ConfigMap kerf-system/kerf-config, field by
field. The format of the text does not matter. If nodes apply another config,
because the ConfigMap has errors or has not reached them, the command also shows
the differences from that config. FILE is as for kerf config validate.

Exit status: 0 without differences, 1 with differences, 2 or more on an error.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := command.CheckOutput(output); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(c.Context(), command.ListTimeout)
			defer cancel()
			p, _, err := compare(ctx, a, args)
			if err != nil {
				return command.Exit(exitTrouble, err)
			}
			if err := a.Answer(output, p, func() string {
				var b strings.Builder
				if p.Differs() > 0 || len(p.Applied) > 0 || len(p.Errors) > 0 {
					p.Header(&b)
				}
				return b.String()
			}); err != nil {
				return command.Exit(exitTrouble, err)
			}
			if n := p.Differs(); n > 0 {
				return command.Exit(exitDiffers, fmt.Errorf("the configs differ in %d fields", n))
			}
			return nil
		},
	}
	command.OutputFlag(c, &output)
	return c
}

func configPlanCommand(a *command.App) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "plan FILE...",
		Short: "Show what a SharingConfig would change in the cluster",
		Long: `Compare a SharingConfig with the config that each node applies, and with the
cluster's ConfigMap. The command changes nothing. FILE is as for kerf config
validate. It shows:

  - for each node, the pool that it would have
  - for each GPU, what changes at once because nothing uses it (now)
  - for each GPU, what is pending, and which grants it waits for (waits)
  - for each GPU, what applies to new grants only (new)
  - for each rule of the pool, profiles and prices, when it applies (rule)
  - the GPUs whose shares would be rejected because no backend is strong enough
    (shares)
  - the nodes that apply their last known good config`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := command.CheckOutput(output); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(c.Context(), command.ListTimeout)
			defer cancel()
			d, x, err := compare(ctx, a, args)
			if err != nil {
				return command.Fail(err)
			}
			p := configplan.Plan{Diff: d, Nodes: []configplan.NodePlan{}}
			if err := x.Nodes(&p); err != nil {
				return command.Fail(err)
			}
			return command.Fail(a.Answer(output, p, p.Text))
		},
	}
	command.OutputFlag(c, &output)
	return c
}

// compare reads a config and the cluster.
func compare(ctx context.Context, a *command.App, names []string) (configplan.Diff, configplan.Comparison, error) {
	d, err := readDocument(a, names)
	if err != nil {
		return configplan.Diff{}, configplan.Comparison{}, err
	}
	api, err := a.Cluster()
	if err != nil {
		return configplan.Diff{}, configplan.Comparison{}, err
	}
	defer api.Close()
	cluster, err := survey.Take(ctx, api)
	if err != nil {
		return configplan.Diff{}, configplan.Comparison{}, fmt.Errorf("read the cluster: %w", err)
	}
	data, err := survey.Config(ctx, api)
	if err != nil && !errors.Is(err, sharing.ErrNotFound) {
		return configplan.Diff{}, configplan.Comparison{}, fmt.Errorf("read the cluster: %w", err)
	}
	return configplan.New(d.config, d.files, cluster, data)
}
