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

	"github.com/kerf-gpu/kerf/internal/trusted"
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
	if err := trusted.Dir(dir); err != nil {
		return fmt.Errorf("%w; what lies in %q runs as root: make it root's with mode 0755", err, dir)
	}
	return nil
}
