// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libkerf

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/kerf-gpu/kerf/sharing"
)

// CheckFile makes sure that programs can map the library, and that none but root wrote it. Errors wrap
// sharing.ErrUnavailable, sharing.ErrDenied or sharing.ErrInvalid.
func CheckFile(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("look at libkerf.so: %w (%w)", err, sharing.ErrUnavailable)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() || stat.Uid != 0 || info.Mode().Perm()&0o022 != 0 ||
		info.Mode().Perm()&0o004 == 0 {
		return fmt.Errorf("%q (%s) is not a file that all can read and root alone can write to: %w", path, info.Mode(),
			sharing.ErrDenied)
	}
	var mount syscall.Statfs_t
	const noexec = 8 // ST_NOEXEC
	if err := syscall.Statfs(path, &mount); err != nil || mount.Flags&noexec != 0 {
		return fmt.Errorf("%q lies where nothing may be executed (%w)", path, errors.Join(sharing.ErrDenied, err))
	}
	f, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("%q is no library: %w (%w)", path, err, sharing.ErrInvalid)
	}
	kind := f.Type
	if err := f.Close(); err != nil || kind != elf.ET_DYN {
		return fmt.Errorf("%q is no library: %w", path, sharing.ErrInvalid)
	}
	return nil
}

// DriverNames are the names that the first of the files exports which is there. Nothing of it is run. Errors wrap
// sharing.ErrNotFound where there is none, and sharing.ErrInvalid where it is no library.
func DriverNames(files []string) ([]string, error) {
	for _, path := range files {
		f, err := elf.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%q: %w (%w)", path, err, sharing.ErrInvalid)
		}
		symbols, err := f.DynamicSymbols()
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, fmt.Errorf("%q: %w (%w)", path, err, sharing.ErrInvalid)
		}
		var names []string
		for _, s := range symbols {
			if s.Section != elf.SHN_UNDEF {
				names = append(names, s.Name)
			}
		}
		return names, nil
	}
	return nil, fmt.Errorf("no libcuda.so.1 in %d places: %w", len(files), sharing.ErrNotFound)
}
