// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package mountns

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sharing"
)

// Volume is a tmpfs of fixed size: a program that fills it takes room from no other.
type Volume struct {
	// Size is the room for contents; the kernel rounds it up to whole pages.
	Size sharing.Bytes
	// Inodes is how many files and folders it can hold, its root included.
	Inodes int
	// Owner is the user that owns its root.
	Owner uint32
	// Mode is that of its root; 0: 0700, so that no user but Owner and root can enter.
	Mode fs.FileMode
}

// Mount mounts the volume at an existing folder, in the host's mount namespace, and checks that this process sees it.
// Errors wrap sharing.ErrInvalid for a path that is not absolute, and those of InHost. They wrap sharing.ErrUnavailable
// if the host has another folder at the path or if the mount does not reach this process.
func (v Volume) Mount(dir string) error {
	if !filepath.IsAbs(dir) {
		return fmt.Errorf("mount a volume at %q: the path is not absolute: %w", dir, sharing.ErrInvalid)
	}
	mode := v.Mode.Perm()
	if mode == 0 {
		mode = 0o700
	}
	var own unix.Stat_t
	if err := unix.Lstat(dir, &own); err != nil {
		return fmt.Errorf("mount a volume at %q: %w", dir, wrap("stat", err))
	}
	err := InHost(func() error {
		var host unix.Stat_t
		if err := unix.Lstat(dir, &host); err != nil {
			return wrap("stat on the host", err)
		}
		if host.Dev != own.Dev || host.Ino != own.Ino {
			return fmt.Errorf("the host has another folder there; mount it into this container at the host's path: %w",
				sharing.ErrUnavailable)
		}
		options := fmt.Sprintf("size=%d,nr_inodes=%d,mode=%04o,uid=%d,gid=0", v.Size, v.Inodes, mode, v.Owner)
		return wrapped("mount", unix.Mount("kerf", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, options))
	})
	if err == nil {
		var seen bool
		if seen, err = Mounted(dir); err == nil && !seen {
			err = fmt.Errorf(
				"this process does not see the mount; use mountPropagation HostToContainer, and a shared mount on "+
					"the host: %w",
				sharing.ErrUnavailable)
		}
		if err != nil {
			err = errors.Join(err, Unmount(dir))
		}
	}
	if err != nil {
		return fmt.Errorf("mount a volume at %q: %w", dir, err)
	}
	return nil
}

// Unmount removes every mount at a folder, in the host's mount namespace and in this process's own. Open files stay
// usable for their processes. Without a mount it does nothing. Errors are those of InHost. It returns none if this
// process may not enter the host's namespace and sees no mount. The removal of the folder then ends a mount that it
// does not see.
func Unmount(dir string) error {
	seen, err := Mounted(dir)
	if err != nil {
		return fmt.Errorf("unmount %q: %w", dir, err)
	}
	if err := InHost(func() error { return unmount(dir) }); err != nil && (seen || !errors.Is(err, sharing.ErrDenied)) {
		return fmt.Errorf("unmount %q on the host: %w", dir, err)
	}
	if err := unmount(dir); err != nil {
		return fmt.Errorf("unmount %q: %w", dir, err)
	}
	return nil
}

func unmount(dir string) error {
	for {
		mounted, err := Mounted(dir)
		if err != nil || !mounted {
			return err
		}
		if err := unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return wrap("unmount", err)
		}
	}
}

// Mounted reports whether the calling thread sees another file system at a folder than at its parent. It is false for a
// folder that does not exist.
func Mounted(dir string) (bool, error) {
	var own, above unix.Stat_t
	err := unix.Lstat(dir, &own)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return false, nil
	}
	if err == nil {
		err = unix.Lstat(filepath.Dir(dir), &above)
	}
	if err != nil {
		return false, wrap(fmt.Sprintf("stat %q", dir), err)
	}
	return own.Dev != above.Dev, nil
}

func wrapped(op string, err error) error {
	if err == nil {
		return nil
	}
	return wrap(op, err)
}
