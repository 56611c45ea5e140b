// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package kubectl is the command line of kubectl-kerf: the commands for a cluster, on every system that has kubectl.
// It imports no package that needs Linux.
package kubectl

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/cli/config"
	"github.com/kerf-gpu/kerf/internal/cli/defrag"
	"github.com/kerf-gpu/kerf/internal/cli/doctor"
	"github.com/kerf-gpu/kerf/internal/cli/drain"
	"github.com/kerf-gpu/kerf/internal/cli/explain"
	"github.com/kerf-gpu/kerf/internal/cli/job"
	"github.com/kerf-gpu/kerf/internal/cli/mig"
	"github.com/kerf-gpu/kerf/internal/cli/resize"
	"github.com/kerf-gpu/kerf/internal/cli/simulate"
	"github.com/kerf-gpu/kerf/internal/cli/status"
	"github.com/kerf-gpu/kerf/internal/cli/ui"
	"github.com/kerf-gpu/kerf/internal/cli/usage"
)

// Root is the command line of kubectl-kerf.
func Root(a *command.App) *cobra.Command {
	a.Plugin = true
	root := a.Root(Commands)
	root.PersistentFlags().Lookup("run-dir").Hidden = true
	root.Long = `kubectl kerf shares NVIDIA GPUs between the pods of a cluster, and shows who
uses them. It accepts kubectl's flags for the connection to a cluster.

It has the commands for a cluster. Those for one machine are in kerf, which
needs Linux.`
	return root
}

// Commands are all commands of kubectl-kerf.
func Commands(a *command.App) []*cobra.Command {
	all := Shared(a)
	for _, family := range []command.Family{doctor.ClusterCommands, job.Commands} {
		all = append(all, family(a)...)
	}
	for _, c := range WithReach(all) {
		for _, sub := range c.Commands() {
			if command.ReachOf(sub) == command.ReachMachine {
				sub.RunE = onMachine
			}
		}
	}
	return all
}

// onMachine rejects a command for one machine.
func onMachine(c *cobra.Command, _ []string) error {
	return command.Fail(fmt.Errorf("%s needs the agent of a Linux machine: run kerf on the node: %w", c.CommandPath(),
		errors.ErrUnsupported))
}

// Shared are the commands that kerf and kubectl-kerf have in common.
func Shared(a *command.App) []*cobra.Command {
	all := []*cobra.Command{a.VersionCommand()}
	for _, family := range []command.Family{
		config.Commands, defrag.Commands, drain.Commands, explain.Commands, mig.Commands, resize.Commands,
		simulate.Commands, status.Commands, ui.Commands, usage.Commands,
	} {
		all = append(all, family(a)...)
	}
	return all
}

// reach has what each command connects to.
func reach() map[string]command.Reach {
	return map[string]command.Reach{
		"audit verify": command.ReachMachine, "config diff": command.ReachCluster, "config plan": command.ReachCluster,
		"config schema": command.ReachNothing, "config validate": command.ReachNothing,
		"config import": command.ReachNothing, "config migrate": command.ReachNothing,
		"cordon": command.ReachCluster, "defrag plan": command.ReachCluster, "defrag apply": command.ReachCluster,
		"doctor": command.ReachEither, "drain": command.ReachCluster,
		"uncordon": command.ReachCluster, "describe pod": command.ReachNamespace,
		"suggest gpu-memory-utilization": command.ReachNothing, "resize": command.ReachEither,
		"metrics":   command.ReachMachine,
		"mig apply": command.ReachMachine, "mig import": command.ReachNothing, "mig plan": command.ReachMachine,
		"mig status": command.ReachAny, "node-files": command.ReachNothing,
		"oci hook": command.ReachMachine, "oci patch": command.ReachMachine,
		"run": command.ReachAny, "simulate": command.ReachCluster, "status": command.ReachAny, "top": command.ReachAny,
		"translate": command.ReachNamespace, "ui": command.ReachAny, "usage": command.ReachAny,
		"version": command.ReachNothing,
	}
}

// WithReach records for each of the commands, and those below it, what it connects to. It returns the commands.
func WithReach(all []*cobra.Command) []*cobra.Command {
	for _, c := range all {
		setReach(c, c.Name())
	}
	return all
}

func setReach(c *cobra.Command, name string) {
	if r, ok := reach()[name]; ok {
		command.SetReach(c, r)
	}
	for _, sub := range c.Commands() {
		setReach(sub, name+" "+sub.Name())
	}
}
