// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package mountns

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sharing"
)

// Only leaves of a folder just these files, in the mount namespace of the calling thread, which Mask has made for it:
// all others that are there, and all that appear later, are not to be seen. A file that is not there is an error, since
// the program is to have it. Each counts as left only after it was looked at again. Errors are those of Mask.
func Only(folder string, files []string) error {
	if !filepath.IsAbs(folder) {
		return fmt.Errorf("leave files of %q: the path is not absolute: %w", folder, sharing.ErrInvalid)
	}
	held := make([]int, 0, len(files))
	defer func() {
		for _, fd := range held {
			_ = unix.Close(fd)
		}
	}()
	for _, f := range files {
		if filepath.Dir(f) != filepath.Clean(folder) {
			return fmt.Errorf("leave %q of %q: it does not lie there: %w", f, folder, sharing.ErrInvalid)
		}
		fd, err := unix.Open(f, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("leave %q: %w", f, wrap("open", err))
		}
		held = append(held, fd)
	}
	if err := unix.Mount("kerf", folder, "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC|unix.MS_NODEV, "mode=0755,size=64k"); err != nil {
		return fmt.Errorf("hide %q: %w", folder, wrap("mount", err))
	}
	for i, f := range files {
		if err := leave(held[i], f); err != nil {
			return fmt.Errorf("leave %q: %w", f, err)
		}
	}
	if err := unix.Mount("", folder, "", unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NOEXEC|unix.MS_NODEV, "mode=0755,size=64k"); err != nil {
		return fmt.Errorf("hide %q: %w", folder, wrap("remount", err))
	}
	return nil
}

// leave shows the file that fd holds at its own path again.
func leave(fd int, path string) error {
	stand, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err == nil {
		err = stand.Close()
	}
	if err != nil {
		return wrap("make a place for it", err)
	}
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", fd), path, "", unix.MS_BIND, ""); err != nil {
		return wrap("bind", err)
	}
	var source, target unix.Stat_t
	if err := unix.Fstat(fd, &source); err != nil {
		return wrap("stat", err)
	}
	if err := unix.Stat(path, &target); err != nil {
		return wrap("stat", err)
	}
	if source.Dev != target.Dev || source.Ino != target.Ino {
		return fmt.Errorf("it is another file after it was mounted: %w", sharing.ErrUnavailable)
	}
	return nil
}
