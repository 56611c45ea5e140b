// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package mountns

import (
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sharing"
)

// Bind shows files and folders at other places, in the mount namespace of the calling thread, which Mask has made
// for it: call Mask first, with no paths if there are none to hide. The targets exist. Each counts as mounted only after
// it was looked at again. Errors are those of Mask.
func Bind(mounts []sharing.Mount) error {
	for _, m := range mounts {
		if !filepath.IsAbs(m.Source) || !filepath.IsAbs(m.Target) {
			return fmt.Errorf("show %q at %q: the path is not absolute: %w", m.Source, m.Target, sharing.ErrInvalid)
		}
	}
	for _, m := range mounts {
		if err := bind(m); err != nil {
			return fmt.Errorf("show %q at %q: %w", m.Source, m.Target, err)
		}
	}
	return nil
}

func bind(m sharing.Mount) error {
	// Looked at first: a target above the source hides it.
	var source, target unix.Stat_t
	if err := unix.Stat(m.Source, &source); err != nil {
		return wrap("stat", err)
	}
	if err := unix.Mount(m.Source, m.Target, "", unix.MS_BIND, ""); err != nil {
		return wrap("bind", err)
	}
	// The mount has the flags of the one that the source lies on, and changes them only in a second call. Those that
	// forbid something stay.
	var fs unix.Statfs_t
	if err := unix.Statfs(m.Target, &fs); err != nil {
		return wrap("statfs", err)
	}
	flags := uintptr(unix.MS_REMOUNT | unix.MS_BIND | unix.MS_NODEV | unix.MS_NOSUID)
	if fs.Flags&unix.ST_NOEXEC != 0 {
		flags |= unix.MS_NOEXEC
	}
	if m.ReadOnly {
		flags |= unix.MS_RDONLY
	}
	if err := unix.Mount("", m.Target, "", flags, ""); err != nil {
		return wrap("remount", err)
	}
	if err := unix.Stat(m.Target, &target); err != nil {
		return wrap("stat", err)
	}
	if err := unix.Statfs(m.Target, &fs); err != nil {
		return wrap("statfs", err)
	}
	if source.Dev != target.Dev || source.Ino != target.Ino || m.ReadOnly != (fs.Flags&unix.ST_RDONLY != 0) {
		return fmt.Errorf("it is another file after it was mounted, or has other rights: %w", sharing.ErrUnavailable)
	}
	return nil
}
