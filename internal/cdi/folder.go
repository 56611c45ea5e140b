// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/kerf-gpu/kerf/sharing"
)

// makeDir makes dir where it is missing, and refuses one in which another user than root could put a file,
// or replace the folder itself: what stands there runs as root.
func makeDir(dir string) error {
	if !filepath.IsAbs(dir) {
		return sharing.Invalid("folder", dir, "write an absolute path", "is not an absolute path")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		word := sharing.ErrUnavailable
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
			word = sharing.ErrDenied
		}
		return fmt.Errorf("make folder %q: %w (%w)", dir, err, word)
	}
	return checkDir(dir)
}

// checkDir walks from dir to the root.
func checkDir(dir string) error {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return fmt.Errorf("look at folder %q: %w (%w)", dir, err, sharing.ErrUnavailable)
	}
	for at := real; ; at = filepath.Dir(at) {
		info, err := os.Lstat(at)
		if err != nil {
			return fmt.Errorf("look at folder %q: %w (%w)", at, err, sharing.ErrUnavailable)
		}
		// In a sticky folder above, /tmp for one, others cannot touch what is root's.
		open := info.Mode().Perm()&0o022 != 0 && (at == real || info.Mode()&fs.ModeSticky == 0)
		if !info.IsDir() || open || !ownedByRoot(info) {
			return fmt.Errorf("folder %q (%s): others than root can write to it, and what lies in %q runs as root: make it root's with mode 0755: %w",
				at, info.Mode(), dir, sharing.ErrDenied)
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}

// ownedByRoot is true for what root owns, or who this process runs as.
func ownedByRoot(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && (stat.Uid == 0 || int64(stat.Uid) == int64(os.Geteuid()))
}
