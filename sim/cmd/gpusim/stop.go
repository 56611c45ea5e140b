// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/sim/launch"
)

func stopCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "stop --dir DIR",
		Short: "End the simulation of a node",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			abs, err := launch.Dir(dir)
			if err != nil {
				return err
			}
			pid, err := launch.Stop(cmd.Context(), abs)
			if err != nil {
				return err
			}
			if pid == 0 {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "no simulated driver runs in %s\n", abs)
			} else {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "stopped process %d in %s\n", pid, abs)
			}
			return err
		},
	}
	dirFlag(cmd, &dir)
	return cmd
}

func envCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "env --dir DIR",
		Short: "Print the shell commands after which programs see a node",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			abs, err := launch.ExistingDir(dir)
			if err != nil {
				return err
			}
			text, err := launch.Env(abs)
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), text)
			return err
		},
	}
	dirFlag(cmd, &dir)
	return cmd
}
