// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package cli is the command line of kerf: it joins the commands of the packages below it. It reads no environment and ends no
// process: cmd/kerf hands in the process.
package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/cli/config"
	"github.com/kerf-gpu/kerf/internal/cli/doctor"
	"github.com/kerf-gpu/kerf/internal/cli/drain"
	"github.com/kerf-gpu/kerf/internal/cli/explain"
	"github.com/kerf-gpu/kerf/internal/cli/mig"
	"github.com/kerf-gpu/kerf/internal/cli/run"
	"github.com/kerf-gpu/kerf/internal/cli/simulate"
	"github.com/kerf-gpu/kerf/internal/cli/status"
	"github.com/kerf-gpu/kerf/internal/cli/usage"
	"github.com/kerf-gpu/kerf/internal/nodeclient"
)

// Root is the command line of kerf.
func Root(a *command.App) *cobra.Command { return a.Root(Commands) }

// Commands are all commands of kerf.
func Commands(a *command.App) []*cobra.Command {
	all := []*cobra.Command{limitCommand(a), metricsCommand(a), versionCommand(a)}
	for _, family := range []command.Family{
		config.Commands, doctor.Commands, drain.Commands, explain.Commands, mig.Commands, run.Commands, simulate.Commands, status.Commands, usage.Commands,
	} {
		all = append(all, family(a)...)
	}
	return all
}

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

func versionCommand(a *command.App) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print kerf's version",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(a.Out, "kerf %s %s/%s %s\n", version(), runtime.GOOS, runtime.GOARCH, runtime.Version())
			return command.Fail(err)
		},
	}
}

// version is the module's version as the build recorded it, which names the commit of a build between
// releases.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "unknown"
	}
	return info.Main.Version
}
