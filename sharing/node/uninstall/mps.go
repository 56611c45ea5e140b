// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/kerf-gpu/kerf/internal/nvml"
	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/mps"
)

// removedModes are compute modes by a driver that is opened at the first use. Without a mode to restore, no driver has
// to be there.
type removedModes struct {
	options nvml.Options
	lib     *nvml.Library
}

func (m *removedModes) open(ctx context.Context) (err error) {
	if m.lib == nil {
		m.lib, err = nvml.Open(ctx, m.options)
	}
	return err //nolint:wrapcheck // it says what it did
}

// ComputeMode implements mps.Modes.
func (m *removedModes) ComputeMode(ctx context.Context, gpu sharing.GPUID) (sharing.ComputeMode, error) {
	if err := m.open(ctx); err != nil {
		return sharing.ComputeModeAsIs, err
	}
	return m.lib.ComputeMode(ctx, gpu)
}

// SetComputeMode implements mps.Modes.
func (m *removedModes) SetComputeMode(ctx context.Context, gpu sharing.GPUID, mode sharing.ComputeMode) error {
	if err := m.open(ctx); err != nil {
		return err
	}
	return m.lib.SetComputeMode(ctx, gpu, mode)
}

// endMPS ends the MPS daemons that an agent has left, and restores the compute modes that it found.
func (r *Removal) endMPS(ctx context.Context) (err error) {
	dir := filepath.Join(r.Dir, "mps")
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil // an agent whose directory has too long a path for sockets of MPS has none
	}
	boot, err := process.BootID()
	if err != nil {
		return fmt.Errorf("boot id: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, settingsDeadline)
	defer cancel()
	rule := mps.ManageMode
	if r.LeaveSettings {
		rule = mps.ReadMode
	}
	modes := &removedModes{options: nvml.Options{LibraryPaths: r.Libraries, Log: r.Log}}
	defer func() {
		if modes.lib != nil {
			err = errors.Join(err, modes.lib.Close())
		}
	}()
	left, err := mps.New(mps.Options{
		Dir: dir, Modes: modes, BootID: boot, Log: r.Log,
		Rule: func(sharing.GPUID) mps.ModeRule { return rule },
	})
	if err == nil {
		err = left.Recover(ctx, nil)
	}
	if err != nil {
		return fmt.Errorf("end MPS (--leave-gpu-settings goes on without the compute modes from before): %w", err)
	}
	if gpus := left.ModesChanged(); len(gpus) > 0 {
		r.Log.Warn("failed to restore compute modes", "gpus", gpus)
	}
	return nil
}
