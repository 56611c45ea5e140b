// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package doctor is kerf doctor: it checks a machine or a cluster and suggests fixes.
package doctor

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/cli/doctor/bundle"
	"github.com/kerf-gpu/kerf/sharing"
)

// Machine is the doctor of a machine. socket is that of the container runtime, if it is not at a default path.
type Machine struct {
	// Check checks this machine. output is the form, and empty for people.
	Check func(ctx context.Context, a *command.App, output, socket string) error
	// Bundle adds what this machine tells of Kerf.
	Bundle func(ctx context.Context, a *command.App, socket string, to *bundle.Archive)
}

// ClusterCommands is kerf doctor for a cluster only. The check of a machine needs Linux.
func ClusterCommands(a *command.App) []*cobra.Command {
	c := doctorCommand(a, Machine{
		Check: func(ctx context.Context, a *command.App, output, _ string) error {
			return clusterDoctor(ctx, a, output)
		},
		Bundle: func(ctx context.Context, a *command.App, _ string, to *bundle.Archive) { clusterBundle(ctx, a, to) },
	})
	c.Short = "Check the cluster and suggest fixes"
	c.Long = `Check a cluster: show which nodes serve pods, and what prevents the others. To
check a machine, use kerf doctor on it. --bundle writes a support archive.

With --node, it prints the preset of the chart for that node, with the values
to set and the paths that the node lacks. It works before the installation. A
Job on the node examines the node's files, read-only, and is deleted at the
end. If the Job cannot run, the Node alone decides, and the output has the
reason. You need the rights to get nodes and namespaces, to create, get and
delete jobs, to list pods and events, and to get pods/log.

Exit status: 1 if a node with the label kerf.dev/deploy-agent=true does not
serve pods. With --node: 0 if the preset is certain or --no-job is set, else 1.`
	return []*cobra.Command{c}
}

// Commands is kerf doctor with this check of the machine.
func Commands(machine Machine) command.Family {
	return func(a *command.App) []*cobra.Command {
		c := doctorCommand(a, machine)
		c.Flags().String("runtime-socket", "", "socket of the container runtime, if not at a default path")
		return []*cobra.Command{c}
	}
}

func doctorCommand(a *command.App, machine Machine) *cobra.Command {
	var output, file string
	var node nodeFlags
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check this machine or cluster and suggest fixes",
		Long: `Check this machine and suggest fixes. The command works without an agent and
without a driver. It creates and removes one cgroup, and changes nothing else.

For a cluster (kubectl kerf doctor, with --context, or in a pod without
/run/kerf), it shows which nodes serve pods, and what prevents the others. It
also names nodes and namespaces with labels or taints of an earlier version.

With --node, it prints the preset of the chart for that node, with the values
to set and the paths that the node lacks. It works before the installation. A
Job on the node examines the node's files, read-only, and is deleted at the
end. If the Job cannot run, the Node alone decides, and the output has the
reason. You need the rights to get nodes and namespaces, to create, get and
delete jobs, to list pods and events, and to get pods/log.

With --bundle, it writes a support archive: the result of the checks, config,
state, GPUNodes, versions, and recent events and logs. The archive has no
Secret, environment, annotation or token. Read it before you send it.

Exit status: 0 if a grant at level driver, exclusive or hardware is possible,
else 1. For a cluster: 1 if a node with the label kerf.dev/deploy-agent=true
does not serve pods. With --node: 0 if the preset is certain or --no-job is
set, else 1.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if output != "" && output != "json" && output != "yaml" {
				return command.Misused(sharing.Invalid("--output", output, "write json or yaml, or leave it out",
					"is not a form of output"))
			}
			if err := checkCombination(c, ofCluster(c, a)); err != nil {
				return command.Misused(err)
			}
			if node.name != "" {
				return presetOfNode(c.Context(), a, node, output)
			}
			return diagnose(c, a, machine, output, file)
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "", "json or yaml")
	c.Flags().StringVar(&file, "bundle", "", "new file for a support archive (tar.gz) without secrets")
	node.define(c)
	command.Complete(c, "output", "json", "yaml")
	return c
}

// checkCombination rejects flags that have no effect next to others or in a cluster.
func checkCombination(c *cobra.Command, cluster bool) error {
	var errs []error
	for _, pair := range [][2]string{{"bundle", "node"}, {"runtime-socket", "node"}, {"output", "bundle"},
		{"image", "no-job"}, {"namespace", "no-job"}} {
		if command.Changed(c, pair[0]) && command.Changed(c, pair[1]) {
			errs = append(errs, sharing.Invalid("--"+pair[0], c.Flag(pair[0]).Value.String(), "leave out one of them",
				"has no effect with --%s", pair[1]))
		}
	}
	for _, name := range []string{"image", "namespace", "no-job"} {
		if command.Changed(c, name) && !command.Changed(c, "node") {
			errs = append(errs, sharing.Invalid("--"+name, c.Flag(name).Value.String(), "name a node with --node",
				"has no effect without --node"))
		}
	}
	if cluster && command.Changed(c, "runtime-socket") {
		errs = append(errs, sharing.Invalid("--runtime-socket", c.Flag("runtime-socket").Value.String(), "leave it out",
			"has no effect on a cluster"))
	}
	return errors.Join(errs...)
}

// diagnose checks the cluster or this machine, or writes the support archive of it.
func diagnose(c *cobra.Command, a *command.App, machine Machine, output, file string) error {
	socket := ""
	if f := c.Flags().Lookup("runtime-socket"); f != nil {
		socket = f.Value.String()
	}
	cluster := ofCluster(c, a)
	switch {
	case file != "" && cluster:
		return writeBundle(a, file, func(to *bundle.Archive) { clusterBundle(c.Context(), a, to) })
	case file != "":
		return writeBundle(a, file, func(to *bundle.Archive) { machine.Bundle(c.Context(), a, socket, to) })
	case cluster:
		return clusterDoctor(c.Context(), a, output)
	}
	return machine.Check(c.Context(), a, output, socket)
}

// ofCluster reports whether the cluster is meant, and not this machine. A pod without the folder of the agent's sockets
// has no view of its node.
func ofCluster(c *cobra.Command, a *command.App) bool {
	if command.Changed(c, "run-dir") || a.Getenv("KERF_DIR") != "" {
		return false
	}
	return a.Meant(c) || a.Getenv("KUBERNETES_SERVICE_HOST") != "" && !command.Exists(a.Dir)
}
