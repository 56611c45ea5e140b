// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/control"
	"github.com/kerf-gpu/kerf/sim/launch"
)

// answerTime bounds what a command waits for the daemon.
const answerTime = 15 * time.Second

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "gpusim",
		Short:         "Simulate a node with NVIDIA GPUs",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return sharing.Invalid("command", args[0], "see gpusim --help", "is not known")
			}
			return cmd.Help()
		},
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return sharing.Invalid("flag", "", "see "+cmd.CommandPath()+" --help", "is wrong: %s", err)
	})
	root.AddCommand(startCommand(), daemonCommand(), stopCommand(), envCommand(), setCommand(), machinesCommand(),
		cdiCommand(), treeCommand())
	root.AddCommand(showCommands()...)
	return root
}

// noArgs refuses words that are no flags.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return sharing.Invalid("argument", args[0], "see "+cmd.CommandPath()+" --help", "is one too many")
	}
	return nil
}

// dirFlag adds --dir.
func dirFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "dir", "", "directory of the simulated node (required)")
}

// outputFlag adds -o.
func outputFlag(cmd *cobra.Command, output *string) {
	cmd.Flags().StringVarP(output, "output", "o", "table", "form of the output: table or json")
}

// ask sends one request to the daemon of a node that was given by --dir.
func ask(ctx context.Context, given string, req control.Request, result any) error {
	dir, err := launch.ExistingDir(given)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	return control.Call(ctx, dir, req, result)
}

func checkOutput(output string) error {
	if output != "table" && output != "json" {
		return sharing.Invalid("--output", output, "write table or json", "is not a form of output")
	}
	return nil
}

// lines joins a help text.
func lines(s ...string) string { return strings.Join(s, "\n") }
