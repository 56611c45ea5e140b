// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/control"
	"github.com/kerf-gpu/kerf/sim/root"
)

func treeCommand() *cobra.Command {
	var given string
	cmd := &cobra.Command{
		Use:   "root ROOT --dir DIR [-- COMMAND...]",
		Short: "Write the files that a driver installs, and run a program that sees them",
		Long: lines("Write the files that a driver installs on a machine to ROOT: versioned libraries, device files,",
			"/proc/driver/nvidia, /proc/modules, GPUs on the PCI bus, and nvidia-smi. Use it as a "+
				"driver root or a chroot.", "",
			"With a command, run it in its own mount namespace, in which these files are at the usual places.",
			"Repeat it after a change of MIG instances. It needs root."),
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if os.Geteuid() != 0 {
				return fmt.Errorf("gpusim root makes device files and mounts, which needs root: %w", sharing.ErrDenied)
			}
			dir, err := filepath.Abs(args[0])
			if err != nil {
				return fmt.Errorf("root %q: %w", args[0], err)
			}
			var s control.Status
			if err := ask(cmd.Context(), given, control.Request{Command: control.CmdStatus}, &s); err != nil {
				return err
			}
			exe, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find gpusim: %w", err)
			}
			if err := root.Make(dir, s, exe); err != nil || len(args) == 1 {
				return err
			}
			return root.Enter(dir, s.Dir, args[1:], os.Environ())
		},
	}
	dirFlag(cmd, &given)
	return cmd
}
