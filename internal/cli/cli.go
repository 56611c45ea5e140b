// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package cli is the command line of kerf: it joins the commands of the packages below it. It reads no environment and
// ends no process: cmd/kerf hands in the process.
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
	"github.com/kerf-gpu/kerf/internal/nodeclient"
)

// Root is the command line of kerf.
func Root(a *command.App) *cobra.Command { return a.Root(Commands) }

// Commands are all commands of kerf.
func Commands(a *command.App) []*cobra.Command {
	all := []*cobra.Command{resizeCommand(a), metricsCommand(a), a.VersionCommand()}
	for _, family := range []command.Family{
		config.Commands, doctor.Commands, drain.Commands, explain.Commands, mig.Commands, run.Commands,
		simulate.Commands, status.Commands, usage.Commands,
	} {
		all = append(all, family(a)...)
	}
	for _, c := range all {
		setReach(c, c.Name())
	}
	return all
}

// reach has what each command connects to.
func reach() map[string]command.Reach {
	return map[string]command.Reach{
		"audit verify": command.ReachMachine, "config diff": command.ReachCluster, "config plan": command.ReachCluster,
		"config schema": command.ReachNothing, "config validate": command.ReachNothing,
		"config import": command.ReachNothing, "config migrate": command.ReachNothing,
		"cordon": command.ReachCluster, "doctor": command.ReachEither, "drain": command.ReachCluster,
		"uncordon": command.ReachCluster, "describe pod": command.ReachNamespace,
		"suggest gpu-memory-utilization": command.ReachNothing, "resize": command.ReachMachine,
		"metrics":   command.ReachMachine,
		"mig apply": command.ReachMachine, "mig import": command.ReachNothing, "mig plan": command.ReachMachine,
		"mig status": command.ReachAny, "oci hook": command.ReachMachine, "oci patch": command.ReachMachine,
		"run": command.ReachAny, "simulate": command.ReachCluster, "status": command.ReachAny, "top": command.ReachAny,
		"translate": command.ReachNamespace, "usage": command.ReachAny, "version": command.ReachNothing,
	}
}

// setReach records for a command, and for those below it, what they connect to.
func setReach(c *cobra.Command, name string) {
	if r, ok := reach()[name]; ok {
		command.SetReach(c, r)
	}
	for _, sub := range c.Commands() {
		setReach(sub, name+" "+sub.Name())
	}
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
