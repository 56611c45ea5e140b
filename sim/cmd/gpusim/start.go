// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/launch"
	"github.com/kerf-gpu/kerf/sim/machine"
)

// nodeFlags say what to simulate where.
type nodeFlags struct {
	machine, driver, dir, libDir string
	noCosts                      bool
	sharing                      string
}

func (f *nodeFlags) add(cmd *cobra.Command) {
	dirFlag(cmd, &f.dir)
	cmd.Flags().StringVar(&f.machine, "machine", "", "machine: "+strings.Join(machine.Names(), ", ")+
		", or the path of a machine file (required)")
	cmd.Flags().StringVar(&f.driver, "driver", "r615", "driver: see gpusim machines")
	cmd.Flags().BoolVar(&f.noCosts, "no-costs", false,
		"without the times and sizes of the driver that were measured (cost.* of gpusim set)")
	cmd.Flags().StringVar(&f.sharing, "sharing", string(machine.SharingSlices),
		"time of a GPU: slices (processes take turns) or fifo (all work in the order of its launches)")
	cmd.Flags().StringVar(&f.libDir, "lib-dir", "",
		"folder that holds a folder of libraries for each driver (default: gpusim-lib next to this program)")
}

// check refuses what the daemon would refuse, before anything is touched, and makes the paths absolute.
func (f *nodeFlags) check() error {
	var err error
	if f.dir, err = launch.Dir(f.dir); err != nil {
		return err
	}
	if f.machine == "" {
		return sharing.Invalid("--machine", "", "write one of "+strings.Join(machine.Names(), ", ")+
			", or the path of a machine file", "is missing")
	}
	if _, err = machine.Load(f.machine); err != nil {
		return err
	}
	if strings.ContainsAny(f.machine, "/.") {
		if f.machine, err = filepath.Abs(f.machine); err != nil {
			return fmt.Errorf("--machine: %w", err)
		}
	}
	if _, err = machine.FindDriver(f.driver); err != nil {
		return err
	}
	if _, ok := (machine.Machine{}).Shared(machine.Sharing(f.sharing)); !ok {
		return sharing.Invalid("--sharing", f.sharing, "write slices or fifo", "is no way to share time")
	}
	if f.libDir == "" {
		exe, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find the libraries: %w", err)
		}
		f.libDir = filepath.Join(filepath.Dir(exe), "gpusim-lib")
	}
	if f.libDir, err = filepath.Abs(f.libDir); err != nil {
		return fmt.Errorf("--lib-dir: %w", err)
	}
	_, err = launch.Libraries(f.libDir, f.driver)
	return err
}

func startCommand() *cobra.Command {
	var f nodeFlags
	cmd := &cobra.Command{
		Use:   "start --machine MACHINE --dir DIR",
		Short: "Simulate a node in the background",
		Long: lines("Simulate a node in the background, and return when it answers.", "",
			"The directory gets lib/ (the driver's libraries), bin/ (the programs of MPS, and nvidia-smi),",
			"dev/ (a socket for each GPU), gpusim.pid and gpusim.log.",
			"Programs see the node after `eval \"$(gpusim env --dir DIR)\"`."),
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			if err := launch.Make(f.dir); err != nil {
				return err
			}
			exe, err := os.Executable()
			if err != nil {
				return fmt.Errorf("start the daemon: %w", err)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), answerTime)
			defer cancel()
			status, err := launch.Start(ctx, f.dir, launch.Program{Path: exe, Args: []string{
				"daemon", "--dir", f.dir, "--machine", f.machine, "--driver", f.driver, "--lib-dir", f.libDir,
				fmt.Sprintf("--no-costs=%t", f.noCosts), "--sharing", f.sharing,
			}})
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "simulating %s with driver %s in %s: %d GPUs, process %d\n",
				status.Machine, status.DriverVersion, status.Dir, len(status.GPUs), status.PID)
			return err
		},
	}
	f.add(cmd)
	return cmd
}
