// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/internal/mountns"
	"github.com/kerf-gpu/kerf/sharing"
)

// SharedMemory is where programs look for POSIX shared memory. A client must see its daemon's there.
const SharedMemory = "/dev/shm"

// MountVolume mounts a tmpfs at a folder, if there is none yet. It has what a daemon shares with containers, so that
// their writes fill neither a disk nor the node's own /run and /dev/shm. Its size is the kernel's default, half of the
// machine's memory, and counts against the memory limit of the writer. No symbolic link in it is followed (Linux 5.10
// and newer): the daemon is root on the node and clients make files there. The container runtime sees it if the caller
// shares its mounts, see mountns.IsHost. Errors: sharing.ErrDenied (no CAP_SYS_ADMIN), sharing.ErrUnavailable.
func MountVolume(dir string) error {
	mounted, err := mountns.Mounted(dir)
	if err != nil || mounted {
		return err
	}
	if err := unix.Mount("kerf-mps", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_NOSYMFOLLOW,
		"mode=0711"); err != nil {
		return volumeError("mount a volume at", dir, err)
	}
	return nil
}

// UnmountVolume takes such a tmpfs away and what is in it, also from who has it mounted still. Where there is none it
// does nothing.
func UnmountVolume(dir string) error {
	for {
		mounted, err := mountns.Mounted(dir)
		if err != nil || !mounted {
			return err
		}
		// Mounts of it elsewhere, such as in the copies that other daemons have, would keep what it holds.
		entries, err := os.ReadDir(dir)
		for _, e := range entries {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
		if err != nil {
			return volumeError("empty the volume at", dir, err)
		}
		if err := unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return volumeError("unmount the volume at", dir, err)
		}
	}
}

func volumeError(what, dir string, err error) error {
	kind := sharing.ErrUnavailable
	if errors.Is(err, fs.ErrPermission) {
		kind = sharing.ErrDenied
	}
	return fmt.Errorf("%s %q: %w (%w)", what, dir, err, kind)
}

// seeing calls do on a thread with the daemon's mounts: programs that do starts see them, and nothing else does.
// Without a Shm it only calls do.
func (d Daemon) seeing(do func() error) error {
	if d.Shm == "" {
		return do()
	}
	return mountns.OnThread(func() error {
		err := mountns.Mask(nil)
		if err == nil {
			err = unix.Mount(d.Shm, SharedMemory, "", unix.MS_BIND, "")
		}
		if err == nil && d.Volume != "" {
			err = unix.Mount(d.Volume, filepath.Dir(d.Volume), "", unix.MS_BIND, "")
		}
		if err != nil {
			return volumeError("give its daemon the volume of", d.Shm, err)
		}
		return do()
	})
}
