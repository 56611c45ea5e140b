// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package mountns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sharing"
)

// Place makes sure that a file exists in the mount namespace of the calling thread, so that Bind can mount over it.
// Call Mask first. If the file exists, nothing changes. Otherwise an empty one appears in the namespace, and nowhere
// else. A read-only file system covers the folder, and each entry of the folder is mounted at its place there.
//
// Writes below the folder still reach its files and its subfolders. The namespace does not see entries that others add
// to the folder, remove from it or replace later, and a program cannot do so. Errors are those of Mask, and
// sharing.ErrNotFound if there is no such folder.
func Place(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("place %q: the path is not absolute: %w", path, sharing.ErrInvalid)
	}
	switch _, err := os.Lstat(path); {
	case err == nil:
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("place %q: %w", path, wrap("stat", err))
	}
	if err := cover(filepath.Dir(path), filepath.Base(path)); err != nil {
		return fmt.Errorf("place %q: %w", path, err)
	}
	return nil
}

// cover puts a file system over a folder that has the entries of the folder and one more.
func cover(folder, more string) error {
	under, err := os.Open(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", sharing.ErrNotFound, err)
	}
	if err != nil {
		return wrap("open folder", err)
	}
	defer under.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(under.Fd()), &st); err != nil {
		return wrap("stat folder", err)
	}
	entries, err := under.ReadDir(-1)
	if err != nil {
		return wrap("read folder", err)
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	options := fmt.Sprintf("mode=%o,uid=%d,gid=%d,size=1m,nr_inodes=%d", st.Mode&0o7777, owner(st.Uid), st.Gid,
		len(entries)+2)
	if err := unix.Mount("kerf", folder, "tmpfs", flags, options); err != nil {
		return wrap("mount", err)
	}
	source := fmt.Sprintf("/proc/self/fd/%d", under.Fd())
	for _, e := range entries {
		if err := show(filepath.Join(source, e.Name()), filepath.Join(folder, e.Name()), e.Type()); err != nil {
			return fmt.Errorf("show %q: %w", e.Name(), err)
		}
	}
	if err := makeEmpty(filepath.Join(folder, more), 0o644); err != nil {
		return wrap("make file", err)
	}
	if err := unix.Mount("", folder, "", unix.MS_REMOUNT|unix.MS_RDONLY|flags, options); err != nil {
		return wrap("remount", err)
	}
	return nil
}

// owner is the owner of a file system that covers a folder of user uid. CAP_SYS_ADMIN allows a mount, but only the
// owner or root can add entries. The file system becomes read-only before any program sees it.
func owner(uid uint32) uint32 {
	if own := unix.Geteuid(); own != 0 {
		return uint32(own) //nolint:gosec // a user ID
	}
	return uid
}

// show makes an entry of a covered folder visible again. One that is gone meanwhile stays away.
func show(source, target string, kind fs.FileMode) error {
	if kind&fs.ModeSymlink != 0 {
		to, err := os.Readlink(source)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			err = os.Symlink(to, target)
		}
		return wrapAny("link", err)
	}
	place := func() error { return makeEmpty(target, 0o600) }
	if kind.IsDir() {
		place = func() error { return os.Mkdir(target, 0o700) }
	}
	if err := place(); err != nil {
		return wrap("make place", err)
	}
	err := unix.Mount(source, target, "", unix.MS_BIND|unix.MS_REC, "")
	if errors.Is(err, fs.ErrNotExist) {
		err = os.Remove(target)
	}
	return wrapAny("bind", err)
}

func wrapAny(op string, err error) error {
	if err == nil {
		return nil
	}
	return wrap(op, err)
}

func makeEmpty(path string, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(mode), f.Close())
}

// Bind shows files and folders at other places, in the mount namespace of the calling thread, which Mask has made for
// it. Call Mask first, with no paths if there are none to hide. The targets exist. Each counts as mounted only after
// another check. Errors are those of Mask.
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
