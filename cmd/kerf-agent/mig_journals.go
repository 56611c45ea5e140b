// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/kerf-gpu/kerf/internal/atomicfile"
)

// journals makes the directory of the MIG journals and returns it: lasting, which outlives a reboot, or mig below dir where
// that is empty. GPUs before Hopper keep their MIG mode over a reboot, so what tells whose the mode is must outlive one, too.
//
// Agents before this one had the journals below dir alone. What lies there is moved, and a link is left in its place, so
// that such an agent, when it comes back, finds them, and what it writes is found after it.
func journals(dir, lasting string) (string, error) {
	below := filepath.Join(dir, migDir)
	if lasting == "" {
		if err := os.MkdirAll(below, 0o700); err != nil {
			return "", fmt.Errorf("directory of mig journals: %w", err)
		}
		return below, nil
	}
	lasting, err := filepath.Abs(lasting)
	if err != nil {
		return "", fmt.Errorf("directory of mig journals: %w", err)
	}
	if err := ownDirectory("--mig-dir", lasting, 0o700); err != nil {
		return "", err
	}
	if err := moveJournals(below, lasting); err != nil {
		return "", fmt.Errorf("move mig journals from %s to %s: %w", below, lasting, err)
	}
	return lasting, nil
}

// moveJournals empties a directory into another one and makes it a link to that. It may be cut off anywhere and done again: a
// journal is taken away once it is there in full, and one that is still here is the newer.
func moveJournals(from, to string) error {
	info, err := os.Lstat(from)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return os.Symlink(to, from)
	case err != nil:
		return err
	case !info.IsDir():
		if target, err := os.Readlink(from); err == nil && target == to {
			return nil
		}
		if err := os.Remove(from); err != nil {
			return err
		}
		return os.Symlink(to, from)
	case sameDirectory(from, to):
		return nil
	}
	if err := atomicfile.CleanTemp(from); err != nil {
		return err
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(from, e.Name())
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := atomicfile.Write(filepath.Join(to, e.Name()), data, 0o600); err != nil {
			return err
		}
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	if err := os.Remove(from); err != nil {
		return err
	}
	return os.Symlink(to, from)
}

// sameDirectory is true for two names of one directory.
func sameDirectory(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}
