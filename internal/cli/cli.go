// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package cli is the command line of kerf: it joins the commands of the packages below it. It reads no environment and
// ends no process: cmd/kerf hands in the process. It needs Linux; package kubectl has the commands that do not.
package cli

import (
	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/cli/doctor"
	"github.com/kerf-gpu/kerf/internal/cli/doctor/machine"
	"github.com/kerf-gpu/kerf/internal/cli/kubectl"
	"github.com/kerf-gpu/kerf/internal/cli/run"
	"github.com/kerf-gpu/kerf/internal/nodeclient"
)

// Root is the command line of kerf.
func Root(a *command.App) *cobra.Command { return a.Root(Commands) }

// Commands are all commands of kerf.
func Commands(a *command.App) []*cobra.Command {
	all := append(kubectl.Shared(a), metricsCommand(a), machine.NodeFiles(a))
	all = append(append(all, doctor.Commands(machine.Doctor())(a)...), run.Commands(a)...)
	return kubectl.WithReach(all)
}

func metricsCommand(a *command.App) *cobra.Command {
	return &cobra.Command{
		Use:   "metrics",
		Short: "Print the metrics of the agent",
		Long: `Print the metrics of the agent in Prometheus text format, as /metrics returns
them.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return command.Fail(nodeclient.Metrics(c.Context(), a.Dir, a.Out))
		},
	}
}
