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

// Show makes a volume that this process sees at dir, with its mounts, visible at the same path in another process's
// mount namespace. A process that is in that namespace already, or that mounts of the host reach, needs nothing. The
// mount there ends with the folder. Errors: sharing.ErrDenied, and sharing.ErrUnavailable. The latter means that the
// process has ended, sees another folder at the path of the parent, or the kernel is older than 5.2.
func Show(dir string, pid int) error {
	if err := reveal(dir, pid); err != nil {
		return fmt.Errorf("show %q to process %d: %w", dir, pid, err)
	}
	return nil
}

func reveal(dir string, pid int) error {
	root := fmt.Sprintf("/proc/%d/root", pid)
	if same, err := sameInode(dir, root+dir); err != nil || same {
		return err
	}
	if same, err := sameInode(filepath.Dir(dir), root+filepath.Dir(dir)); err != nil || !same {
		return notHere(err)
	}
	volume, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return wrap("clone the mount", err)
	}
	defer func() { _ = unix.Close(volume) }()
	theirs, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	if err != nil {
		return wrap("open its mount namespace", err)
	}
	defer theirs.Close()
	err = within(theirs, func() error {
		return wrapped("mount", unix.MoveMount(volume, "", unix.AT_FDCWD, dir, unix.MOVE_MOUNT_F_EMPTY_PATH))
	})
	if err != nil {
		return err
	}
	if same, err := sameInode(dir, root+dir); err != nil || !same {
		return notHere(err)
	}
	return nil
}

func notHere(err error) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("it has another folder there: %w", sharing.ErrUnavailable)
}

func sameInode(a, b string) (bool, error) {
	var x, y unix.Stat_t
	if err := unix.Stat(a, &x); err != nil {
		return false, wrap(fmt.Sprintf("stat %q", a), err)
	}
	if err := unix.Stat(b, &y); err != nil {
		return false, wrap(fmt.Sprintf("stat %q", b), err)
	}
	return x.Dev == y.Dev && x.Ino == y.Ino, nil
}
