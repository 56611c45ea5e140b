// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/nodeclient"
)

func metricsCommand(a *command.App) *cobra.Command {
	return &cobra.Command{
		Use:   "metrics",
		Short: "Print the agent's metrics",
		Long:  "Print the agent's metrics in Prometheus' text format, as its /metrics answers them.",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return command.Fail(nodeclient.Metrics(c.Context(), a.Dir, a.Out))
		},
	}
}
