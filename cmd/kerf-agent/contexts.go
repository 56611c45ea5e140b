// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/internal/cudacontext"
	"github.com/kerf-gpu/kerf/internal/nvml"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/caps/contextsize"
	"github.com/kerf-gpu/kerf/sharing/node"
	"github.com/kerf-gpu/kerf/sharing/node/contextprobe"
)

const (
	// holdCommand is the subcommand of the helper that makes a context.
	holdCommand = "hold-context"
	// holdMost is how long a helper lives if nothing ends it before.
	holdMost = time.Minute
)

// holdContextCommand makes a context on the first GPU that CUDA shows, when the agent says so.
func holdContextCommand() *cobra.Command {
	return &cobra.Command{
		Use:    holdCommand + " LIBRARY...",
		Short:  "Make a CUDA context and keep it until standard input ends",
		Hidden: true,
		Args:   cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, libraries []string) error {
			defer time.AfterFunc(holdMost, func() { os.Exit(1) }).Stop()
			return cudacontext.Hold(c.InOrStdin(), c.OutOrStdout(), libraries)
		},
	}
}

// contextProber measures contexts with helpers of this program.
func (a *agent) contextProber(lib *nvml.Library, driver node.Driver) *contextprobe.Prober {
	start := cudacontext.Start{
		Program: "/proc/self/exe", Args: append([]string{holdCommand, "--"}, append(a.preloadProbe(lib).Drivers, driverLibrary)...),
		Folders: a.driverFolders, NoMPS: filepath.Join(a.dir, "no-mps"), Keep: a.keepDaemon,
	}
	return &contextprobe.Prober{
		Sizes: a.contexts, Log: a.log, GPUs: a.runtime.ContextGPUs, Changed: a.runtime.Changed,
		List: func(ctx context.Context, gpu sharing.GPUID) ([]contextsize.Use, error) {
			list, err := driver.Processes(ctx, gpu)
			out := make([]contextsize.Use, 0, len(list))
			for _, u := range list {
				out = append(out, contextsize.Use{PID: u.PID, Bytes: u.Used, Known: u.Known})
			}
			return out, err
		},
		Start: func(ctx context.Context, gpu sharing.GPUID) (contextprobe.Helper, error) {
			one := start
			one.GPU = gpu
			return one.Run(ctx)
		},
	}
}
