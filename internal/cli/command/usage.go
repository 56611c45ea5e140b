// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kerf-gpu/kerf/sharing"
)

// Reach is what a command connects to. It decides which of the flags of all commands have an effect on it.
type Reach string

// What commands connect to. ReachEither: the machine's agent or a cluster. ReachNamespace: one namespace of a cluster;
// ReachAny: the agent, or one namespace of a cluster.
const (
	ReachNothing   Reach = "nothing"
	ReachMachine   Reach = "machine"
	ReachCluster   Reach = "cluster"
	ReachNamespace Reach = "namespace"
	ReachEither    Reach = "either"
	ReachAny       Reach = "any"
)

// reachAnnotation is the key in a command's annotations, which only this package reads.
const reachAnnotation = "reach"

// SetReach records what a command connects to.
func SetReach(c *cobra.Command, r Reach) {
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[reachAnnotation] = string(r)
}

// ReachOf returns what a command connects to; empty if it is not recorded.
func ReachOf(c *cobra.Command) Reach { return Reach(c.Annotations[reachAnnotation]) }

func (r Reach) machine() bool {
	return slices.Contains([]Reach{"", ReachMachine, ReachEither, ReachAny}, r)
}
func (r Reach) namespace() bool { return slices.Contains([]Reach{"", ReachNamespace, ReachAny}, r) }
func (r Reach) cluster() bool   { return r != ReachNothing && r != ReachMachine }

// idle returns the flags of all commands that have no effect on a command.
func (r Reach) idle() []string {
	var out []string
	if !r.machine() {
		out = append(out, "run-dir")
	}
	if !r.cluster() {
		out = append(out, append(connectionFlags(), "kubeconfig", "context")...)
	}
	if !r.namespace() {
		out = append(out, "namespace")
	}
	return out
}

// checkFlags rejects flags of all commands that have no effect on this one.
func checkFlags(c *cobra.Command, _ []string) error {
	var errs []error
	for _, name := range ReachOf(c).idle() {
		// A command may have a flag of the same name.
		if f := c.InheritedFlags().Lookup(name); f != nil && f.Changed {
			errs = append(errs, sharing.Invalid("--"+name, f.Value.String(), "leave it out", "has no effect on %q",
				c.CommandPath()))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return Misused(err)
	}
	return nil
}

// showHelp hides the flags without effect from the help of a command.
func showHelp(help func(*cobra.Command, []string)) func(*cobra.Command, []string) {
	return func(c *cobra.Command, args []string) {
		for _, name := range ReachOf(c).idle() {
			if f := c.InheritedFlags().Lookup(name); f != nil {
				f.Hidden = true
			}
		}
		help(c, args)
	}
}

// flagError adds to an unknown flag the one that was probably meant.
func flagError(c *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}
	var known []string
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			known = append(known, f.Name)
		}
	})
	near := sharing.Nearest(unknown.GetSpecifiedName(), known)
	if near == "" {
		return err
	}
	return fmt.Errorf("%w; did you mean --%s?", err, near)
}

// groupsOnly makes the commands that only group others reject unknown commands, with the one that was probably meant.
func groupsOnly(c *cobra.Command) {
	for _, sub := range c.Commands() {
		groupsOnly(sub)
	}
	if !c.HasSubCommands() || c.Name() == "completion" {
		return
	}
	c.Args = unknownCommand
	c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
}

func unknownCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var known []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			known = append(known, sub.Name())
			known = append(known, sub.Aliases...)
		}
	}
	text := fmt.Sprintf("unknown command %q", args[0])
	if near := sharing.Nearest(args[0], known); near != "" {
		text += "; did you mean " + strings.TrimSpace(c.CommandPath()+" "+near) + "?"
	}
	return errors.New(text)
}
