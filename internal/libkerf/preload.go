// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libkerf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/kerf-gpu/kerf/sharing"
)

// LibraryFile is the name of the library in a region's folder.
const LibraryFile = "libkerf.so"

// preloadName is the folder in the path that programs preload. The C library glibc puts the processor's name in the
// place of $PLATFORM, so 32-bit programs find another file. ASan exits unless the path of the first library contains
// "libasan.so".
const preloadName = "libasan.so-"

// platforms64 are glibc's values in 64-bit programs (AT_PLATFORM of the kernel, and glibc's names for some processors).
// The C library musl leaves the variable as it is. The values of 32-bit programs are platforms32.
func platforms64() []string {
	return []string{"x86_64", "haswell", "xeon_phi", "aarch64", "$PLATFORM"}
}

func platforms32() []string { return []string{"i386", "i486", "i586", "i686"} }

// PreloadPath is the library path of a region's folder for the dynamic loader, in LD_PRELOAD or in
// /etc/ld.so.preload. MakePreload makes the folder ready for it.
func PreloadPath(dir string) string {
	return filepath.Join(dir, preloadName+"$PLATFORM", LibraryFile)
}

// MakePreload makes the names in a region's folder that PreloadPath leads through. 64-bit programs get LibraryFile of
// the folder. 32-bit programs get a library that contains nothing, so that their loader prints no error. The error
// wraps sharing.ErrUnavailable.
func MakePreload(dir string) error {
	for _, p := range platforms64() {
		err := os.Symlink(".", filepath.Join(dir, preloadName+p))
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make preload path: %w (%w)", err, sharing.ErrUnavailable)
		}
	}
	for _, p := range platforms32() {
		if err := writeEmpty(filepath.Join(dir, preloadName+p)); err != nil {
			return fmt.Errorf("make preload path: %w (%w)", err, sharing.ErrUnavailable)
		}
	}
	return nil
}

// writeEmpty writes the empty library into a folder that every program may read, whatever the mask of this process.
func writeEmpty(dir string) error {
	file := filepath.Join(dir, LibraryFile)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(file, emptyLibrary(), 0o644); err != nil { //nolint:gosec // every program reads it
		return err
	}
	return errors.Join(os.Chmod(dir, 0o755), os.Chmod(file, 0o644))
}
