// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/kerf-gpu/kerf/internal/atomicfile"
	"github.com/kerf-gpu/kerf/sharing"
)

// Store keeps the journals.
type Store interface {
	// Load returns nil, and no error, where there is none for the GPU.
	Load(gpu sharing.GPUID) ([]byte, error)
	// Save returns once the bytes would outlive a loss of power.
	Save(gpu sharing.GPUID, data []byte) error
}

// Files is a Store with a file for each GPU in a directory, which must exist and belong to root alone.
type Files struct{ Dir string }

// Path is a GPU's file.
func (f Files) Path(gpu sharing.GPUID) string { return filepath.Join(f.Dir, string(gpu)+".json") }

// Load reads a GPU's file. Errors wrap sharing.ErrInvalid (a name that is no UUID) or sharing.ErrUnavailable.
func (f Files) Load(gpu sharing.GPUID) ([]byte, error) {
	if err := checkName(gpu); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(f.Path(gpu))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read mig journal: %w (%w)", err, sharing.ErrUnavailable)
	}
	return data, nil
}

// Save writes a GPU's file. Errors are those of atomicfile.Write, and as Load's.
func (f Files) Save(gpu sharing.GPUID, data []byte) error {
	if err := checkName(gpu); err != nil {
		return err
	}
	if err := atomicfile.Write(f.Path(gpu), data, 0o600); err != nil {
		return fmt.Errorf("write mig journal: %w", err)
	}
	return nil
}

// checkName refuses what would lead out of the directory; the driver's UUIDs never do.
func checkName(gpu sharing.GPUID) error {
	for _, r := range gpu {
		if (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && r != '-' {
			return sharing.Invalid("gpu", string(gpu), "write a UUID", "is no GPU's UUID")
		}
	}
	if gpu == "" {
		return sharing.Invalid("gpu", "", "write a UUID", "is missing")
	}
	return nil
}
