// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package mountns

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sharing"
)

// nothing is what stands in for a file that is no character device. Under a nodev mount it cannot be
// opened, and a socket address that leads to it refuses every connection.
const nothing = "/dev/null"

// Mask moves the calling thread into a separate mount namespace and hides each path there. An open of a hidden
// character device fails with EACCES, and a connect to a hidden socket is refused.
//
// The caller has locked its goroutine to the thread (runtime.LockOSThread) and never unlocks it. It executes the
// program from that same thread; other threads keep the old namespace. Paths are absolute, and a missing one is
// skipped. Errors wrap sharing.ErrInvalid for a path that is not absolute, sharing.ErrDenied without CAP_SYS_ADMIN, and
// sharing.ErrUnavailable for everything else.
func Mask(paths []string) error {
	for _, p := range paths {
		if !filepath.IsAbs(p) {
			return fmt.Errorf("hide %q: the path is not absolute: %w", p, sharing.ErrInvalid)
		}
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return wrap("make a mount namespace", err)
	}
	// Without this, our mounts would travel to the namespace that the copy was made from.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return wrap("make mounts private", err)
	}
	// Sorted and unique, so that the same set always gives the same mounts.
	paths = slices.Clone(paths)
	slices.Sort(paths)
	for _, p := range slices.Compact(paths) {
		if err := hide(p); err != nil {
			return err
		}
	}
	return nil
}

// hide puts a mount over path and looks whether it is there.
func hide(path string) error {
	var st unix.Stat_t
	switch err := unix.Stat(path, &st); {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return nil
	case err != nil:
		return wrap(fmt.Sprintf("hide %q: stat", path), err)
	}
	// A character device covers itself, so that programs which only look at it (type, number) still find
	// what they expect; only its opening is refused.
	source := path
	if st.Mode&unix.S_IFMT != unix.S_IFCHR {
		source = nothing
	}
	if err := unix.Mount(source, path, "", unix.MS_BIND, ""); err != nil {
		return wrap(fmt.Sprintf("hide %q: bind", path), err)
	}
	// A bind mount takes its flags from its source and changes them only in a second call. One flag of the
	// source must stay, since a user namespace may not drop it; access times stay when none is named.
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return wrap(fmt.Sprintf("hide %q: statfs", path), err)
	}
	flags := uintptr(unix.MS_REMOUNT | unix.MS_BIND | unix.MS_NODEV | unix.MS_NOSUID | unix.MS_NOEXEC)
	if fs.Flags&unix.ST_RDONLY != 0 {
		flags |= unix.MS_RDONLY
	}
	if err := unix.Mount("", path, "", flags, ""); err != nil {
		return wrap(fmt.Sprintf("hide %q: remount without devices", path), err)
	}
	return verify(path)
}

// verify reports whether path now leads to a character device under a nodev mount, which no process can open or
// connect to. It opens nothing: to open a GPU's file may wake the GPU.
func verify(path string) error {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return wrap(fmt.Sprintf("check %q: stat", path), err)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return wrap(fmt.Sprintf("check %q: statfs", path), err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR || fs.Flags&unix.ST_NODEV == 0 {
		return fmt.Errorf("check %q: it can still be opened after it was hidden: %w", path, sharing.ErrUnavailable)
	}
	return nil
}

// wrap gives an errno its place in the error vocabulary and keeps its text.
func wrap(op string, err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return fmt.Errorf("%s: %w: %w", op, sharing.ErrDenied, err)
	}
	return fmt.Errorf("%s: %w: %w", op, sharing.ErrUnavailable, err)
}

// Only leaves just these files of a folder visible, in the mount namespace of the calling thread, which Mask has made
// for it. All other files, also later ones, are hidden. A missing file is an error, since the program is to have it.
// Each counts as left only after another check. Errors are those of Mask.
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
	if err := unix.Mount("kerf", folder, "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC|unix.MS_NODEV,
		"mode=0755,size=64k"); err != nil {
		return fmt.Errorf("hide %q: %w", folder, wrap("mount", err))
	}
	for i, f := range files {
		if err := leave(held[i], f); err != nil {
			return fmt.Errorf("leave %q: %w", f, err)
		}
	}
	if err := unix.Mount("", folder, "", unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NOEXEC|unix.MS_NODEV,
		"mode=0755,size=64k"); err != nil {
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
