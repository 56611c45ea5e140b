// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package status is the commands that show what runs: kerf status and kerf top, of a machine or a cluster.
package status

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	nodev1 "github.com/kerf-gpu/kerf/api/node/v1"
	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/nodeclient"
	"github.com/kerf-gpu/kerf/internal/present"
	"github.com/kerf-gpu/kerf/sharing"
)

// watchInterval is the longest time between two pictures of a watch.
const watchInterval = time.Second

// statusOptions are the flags of status.
type statusOptions struct {
	output, wait string
	watch        bool
	timeout      time.Duration
}

// Commands are the commands of this package.
func Commands(a *command.App) []*cobra.Command {
	return []*cobra.Command{statusCommand(a), topCommand(a)}
}

func statusCommand(a *command.App) *cobra.Command {
	o := &statusOptions{}
	c := &cobra.Command{
		Use:   "status",
		Short: "Show the GPUs and who holds what",
		Long: `Show the GPUs of this machine and who holds what: bars on a terminal, a table elsewhere. Of a cluster it shows each
node's, as its agent tells of them (GPUNode), with --namespace the claims of that namespace alone.

-o json and -o yaml are for scripts: their fields keep their names and meanings. -o wide adds UUIDs and
cgroups, -o bars and -o table choose a form whatever the output goes to.

--wait returns when its condition holds: "ready" (the agent takes claims) or "grants=N" (exactly N grants
live). It waits for an agent that is not there yet or is restarting, and fails after --timeout.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return status(a, c, o) },
	}
	f := c.Flags()
	f.StringVarP(&o.output, "output", "o", "", "json, yaml, wide, table or bars")
	f.BoolVarP(&o.watch, "watch", "w", false, "show every change until ctrl-C")
	f.StringVar(&o.wait, "wait", "", "wait for a condition: ready or grants=N")
	f.DurationVar(&o.timeout, "timeout", 30*time.Second, "the longest time for --wait")
	command.Complete(c, "output", outputs()...)
	command.Complete(c, "wait", "ready", "grants=0")
	return c
}

func outputs() []string { return []string{"json", "yaml", "wide", "table", "bars"} }

func status(a *command.App, c *cobra.Command, o *statusOptions) error {
	if o.output != "" && !slices.Contains(outputs(), o.output) {
		return command.Misused(sharing.Invalid("--output", o.output, "write one of "+strings.Join(outputs(), ", "), "is not a form of output"))
	}
	if a.Remote(c) {
		return clusterStatus(a, c, o)
	}
	waits := c.Flags().Changed("wait")
	switch {
	case waits && o.watch:
		return command.Misused(sharing.Invalid("--wait", o.wait, "leave out one of them", "cannot be given together with --watch"))
	case !waits && c.Flags().Changed("timeout"):
		return command.Misused(sharing.Invalid("--timeout", o.timeout.String(), "add --wait CONDITION", "is for --wait alone"))
	case waits:
		return statusWait(c.Context(), a, o)
	case o.watch:
		return statusWatch(c.Context(), a, o)
	}
	client, err := nodeclient.New(a.Dir)
	if err != nil {
		return command.Fail(err)
	}
	defer func() { _ = client.Close() }()
	p, err := client.Node(c.Context())
	if err != nil {
		return command.Fail(err)
	}
	return command.Fail(show(a, o.output, p))
}

// show prints one picture.
func show(a *command.App, output string, p *nodev1.GetNodeResponse) error {
	text, err := render(a, output, p)
	if err != nil {
		return err
	}
	_, err = a.Out.Write(text)
	return err
}

// render is a picture in the form that was asked for, or that fits where the output goes.
func render(a *command.App, output string, p *nodev1.GetNodeResponse) ([]byte, error) {
	s := present.FromNode(p)
	switch output {
	case "json":
		return present.JSON(s, true)
	case "yaml":
		return present.YAML(s)
	}
	width, _, terminal := a.Screen()
	o := present.Options{Width: width, Color: a.Colors(), Wide: output == "wide", User: command.UserName}
	if output == "bars" || output != "table" && terminal {
		return []byte(present.Bars(s, o)), nil
	}
	return []byte(present.Table(s, o)), nil
}
