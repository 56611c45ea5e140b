// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/sim/daemon"
	"github.com/kerf-gpu/kerf/sim/launch"
	"github.com/kerf-gpu/kerf/sim/machine"
	"github.com/kerf-gpu/kerf/sim/mps"
	"github.com/kerf-gpu/kerf/sim/smi"
)

// daemonCommand is what start runs in the background; by hand it is for looking at what the daemon says.
func daemonCommand() *cobra.Command {
	var f nodeFlags
	readyFD := -1
	cmd := &cobra.Command{
		Use:    "daemon --machine MACHINE --dir DIR",
		Short:  "Simulate a node in the foreground",
		Hidden: true,
		Args:   noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), slog.New(slog.NewTextHandler(os.Stderr, nil)), readyFD)
		},
	}
	f.add(cmd)
	cmd.Flags().IntVar(&readyFD, "ready-fd", readyFD, "descriptor at which the one who started this waits for a report")
	return cmd
}

// run simulates until ctx ends or the daemon receives the stop command.
func (f *nodeFlags) run(ctx context.Context, log *slog.Logger, readyFD int) error {
	lock, d, err := f.prepare(ctx, log)
	if reported := launch.Report(readyFD, err); err != nil || reported != nil {
		return errors.Join(err, reported)
	}
	return errors.Join(d.Run(ctx), lock.Unlock())
}

// prepare takes the directory, installs the libraries and binds the sockets. If it fails, it unlocks the
// directory.
func (f *nodeFlags) prepare(ctx context.Context, log *slog.Logger) (*daemon.PIDFile, *daemon.Daemon, error) {
	if err := f.check(); err != nil {
		return nil, nil, err
	}
	mach, err := machine.Load(f.machine)
	if err != nil {
		return nil, nil, err
	}
	if f.noCosts {
		mach = mach.WithoutCosts()
	}
	mach, _ = mach.Shared(machine.Sharing(f.sharing)) // checked
	drv, err := machine.FindDriver(f.driver)
	if err != nil {
		return nil, nil, err
	}
	if err := launch.Make(f.dir); err != nil {
		return nil, nil, err
	}
	lock, err := daemon.Lock(ctx, f.dir)
	if err != nil {
		return nil, nil, err
	}
	if err := install(f); err != nil {
		return nil, nil, errors.Join(err, lock.Unlock())
	}
	d, err := daemon.New(daemon.Options{Dir: f.dir, Machine: mach, Driver: drv, Log: log})
	if err != nil {
		return nil, nil, errors.Join(err, lock.Unlock())
	}
	return lock, d, nil
}

// install puts the driver's libraries, the programs of MPS and nvidia-smi, into the node's directory.
func install(f *nodeFlags) error {
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("install programs: %w", err)
	}
	return errors.Join(launch.Install(f.libDir, f.driver, f.dir),
		launch.InstallPrograms(exe, f.dir, mps.ControlName, mps.ServerName, smi.PolicyName),
		launch.InstallProgram(filepath.Join(f.libDir, smi.Name), f.dir))
}
