// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package trusted decides whether a directory belongs to this process alone. Only root, and the user of this process,
// can then put a file into it or replace the directory itself.
package trusted

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/kerf-gpu/kerf/sharing"
)

// Dir checks dir and each directory above it. The error wraps sharing.ErrDenied if another user can write to one of
// them or owns it, and sharing.ErrUnavailable if one cannot be read. Above dir, others may write to a sticky directory
// such as /tmp, in which they cannot touch what is not theirs.
func Dir(dir string) error {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return fmt.Errorf("read directory %q: %w (%w)", dir, err, sharing.ErrUnavailable)
	}
	for at := real; ; at = filepath.Dir(at) {
		info, err := os.Lstat(at)
		if err != nil {
			return fmt.Errorf("read directory %q: %w (%w)", at, err, sharing.ErrUnavailable)
		}
		sticky := at != real && info.Mode()&fs.ModeSticky != 0
		switch {
		case !info.IsDir():
			return fmt.Errorf("%q is no directory: %w", at, sharing.ErrDenied)
		case !Owned(info):
			return fmt.Errorf("directory %q is owned by another user than root, who can replace what is in %q: %w", at,
				dir, sharing.ErrDenied)
		case info.Mode().Perm()&0o022 != 0 && !sticky:
			return fmt.Errorf("directory %q has mode %#o, so others can replace what is in %q: %w", at,
				info.Mode().Perm(), dir, sharing.ErrDenied)
		case at == filepath.Dir(at):
			return nil
		}
	}
}

// Owned reports whether root or the user of this process owns a file.
func Owned(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && (stat.Uid == 0 || int64(stat.Uid) == int64(os.Geteuid()))
}
