// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"path/filepath"

	"github.com/kerf-gpu/kerf/internal/cudacontext"
	"github.com/kerf-gpu/kerf/internal/nvml"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf/contextsize"
	"github.com/kerf-gpu/kerf/sharing/node/contextprobe"
	"github.com/kerf-gpu/kerf/sharing/node/gpudriver"
)

// HelperCommand is the subcommand of kerf-agent for the helper that makes a context (internal/cudacontext.RunHelper).
const HelperCommand = "hold-context"

// contextProber measures contexts with helpers of this program.
func (s *Session) contextProber(lib *nvml.Library, driver gpudriver.Reader) *contextprobe.Prober {
	start := cudacontext.Start{
		Program: "/proc/self/exe", Args: append([]string{HelperCommand, "--"},
			append(s.preloadProbe(lib).Drivers, driverLibrary)...),
		Folders: s.Options.Driver.Folders, NoMPS: filepath.Join(s.Options.Dirs.Dir, "no-mps"),
		MoveToCgroup: s.keepDaemon,
	}
	return &contextprobe.Prober{
		Sizes: s.Contexts, Log: s.Log, GPUs: s.Runtime.ContextGPUs, Changed: s.Runtime.Changed,
		List: func(ctx context.Context, gpu sharing.GPUID) ([]contextsize.Use, error) {
			list, err := driver.Processes(ctx, sharing.GPURef{UUID: gpu})
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
