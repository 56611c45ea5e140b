// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/kerf-gpu/kerf/internal/atomicfile"
	"github.com/kerf-gpu/kerf/sharing/node/cluster"
	"github.com/kerf-gpu/kerf/sharing/node/session"
	"github.com/kerf-gpu/kerf/sharing/node/settings"
)

// lasting are the names of what a node needs again after a reboot. MIG journals: GPUs before Hopper keep their MIG mode
// over a reboot. The last known good config: it applies while the new config is bad. The GPUs that an administrator has
// cordoned.
func lasting() []string { return []string{session.MIGDir, settings.LastGood, cluster.CordonsFile} }

// stateDirectory readies the directory of what outlives a reboot and returns it: state, or dir where that is empty or
// another name of it.
func stateDirectory(dir, state string) (string, error) {
	if state == "" {
		return dir, nil
	}
	state, err := filepath.Abs(state)
	if err != nil {
		return "", fmt.Errorf("--state-dir %q: %w", state, err)
	}
	if err := ownDirectory("--state-dir", state, 0o700); err != nil {
		return "", err
	}
	if sameDirectory(dir, state) {
		return dir, nil
	}
	return state, nil
}

// takeState moves the state of earlier agents, which had all of it in dir, and leaves links in its place. Such an agent
// finds it when it comes back, and this agent finds what that one writes. No other process may write to either.
func takeState(dir, state string) error {
	if err := atomicfile.CleanTemp(state); err != nil {
		return err
	}
	for _, name := range lasting() {
		from, to := filepath.Join(dir, name), filepath.Join(state, name)
		if name == session.MIGDir {
			if err := os.MkdirAll(to, 0o700); err != nil {
				return fmt.Errorf("directory of mig journals: %w", err)
			}
		}
		if err := moveState(from, to); err != nil {
			return fmt.Errorf("move %s to %s: %w", from, to, err)
		}
	}
	return nil
}

// moveState moves a file, or all in a directory to another one, and leaves a link. It can be repeated after a crash at
// any step. It removes a file only when the copy is complete, so a remaining file is the newer one.
func moveState(from, to string) error {
	info, err := os.Lstat(from)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return os.Symlink(to, from)
	case err != nil:
		return err
	case info.Mode()&fs.ModeSymlink != 0:
		if target, err := os.Readlink(from); err == nil && target == to {
			return nil
		}
	case info.IsDir():
		if sameDirectory(from, to) {
			return nil
		}
		if err := moveAll(from, to); err != nil {
			return err
		}
	default:
		if err := copyFile(from, to); err != nil {
			return err
		}
	}
	if err := os.Remove(from); err != nil {
		return err
	}
	return os.Symlink(to, from)
}

// moveAll empties a directory of files into another one.
func moveAll(from, to string) error {
	if err := atomicfile.CleanTemp(from); err != nil {
		return err
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(from, e.Name())
		if err := copyFile(path, filepath.Join(to, e.Name())); err != nil {
			return err
		}
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from) // #nosec G304 -- below --run-dir, which is root's
	if err != nil {
		return err
	}
	return atomicfile.Write(to, data, 0o600)
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
