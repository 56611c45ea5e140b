// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/kerf-gpu/kerf/internal/nvidiasmi"
	"github.com/kerf-gpu/kerf/internal/nvml"
	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sharing/node/settings/gpumode"
)

// restored restores the time slices, compute modes and power limits of GPUs that an agent changed and did not restore,
// because it was killed. If none is left, it needs no driver.
func (r *Removal) restored(ctx context.Context) error {
	boot, err := process.BootID()
	if err != nil {
		return fmt.Errorf("boot id: %w", err)
	}
	path := filepath.Join(r.Dir, gpumode.File)
	gpus, err := gpumode.Remembered(path, boot, r.Log)
	if err != nil || len(gpus) == 0 {
		return err //nolint:wrapcheck // it says what it did
	}
	if r.LeaveSettings {
		r.Log.Warn("failed to restore GPU settings", "gpus", gpus)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, settingsDeadline)
	defer cancel()
	lib, err := nvml.Open(ctx, nvml.Options{LibraryPaths: r.Libraries, Log: r.Log})
	if err == nil {
		var k *gpumode.Manager
		door := gpumode.NVIDIA{Library: lib,
			Program: nvidiasmi.New(nvidiasmi.Options{Path: nvidiasmi.Find(r.NVIDIASMI, r.DevRoot),
				Libraries: r.DriverFolders})}
		if k, err = gpumode.Open(path, boot, door, r.Log); err == nil {
			err = k.Restore(ctx)
		}
		err = errors.Join(err, lib.Close())
	}
	if err != nil {
		return fmt.Errorf("put back what %d GPUs had before Kerf (%s has it; --leave-gpu-settings goes on without): %w",
			len(gpus), path, err)
	}
	r.Log.Info("restored GPU settings", "gpus", gpus)
	return nil
}
