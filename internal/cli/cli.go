// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package cli is the command line of kerf: it joins the commands of the packages below it. It reads no environment and ends no
// process: cmd/kerf hands in the process.
package cli

import (
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
