// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package root

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Enter becomes a program that sees the tree of Make at the usual places: in its own mount namespace, the rest of the
// machine as it is. MIG instances that are made later appear, too: their capabilities are those below node, the
// simulated driver's directory. It needs root, and returns only if it fails. The thread stays in the namespace then.
func Enter(dir, node string, argv, env []string) error {
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
		return fmt.Errorf("make mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := showCaps(dir, node); err != nil {
		return err
	}
	for _, step := range []func(string) error{enterUsr, enterDev, enterRun, enterSys, enterProc} {
		if err := step(dir); err != nil {
			return err
		}
	}
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return fmt.Errorf("find program: %w", err)
	}
	return fmt.Errorf("run %q: %w", path, unix.Exec(path, argv, env))
}

func bind(from, to string) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %q to %q: %w", from, to, err)
	}
	return nil
}

// showCaps shows the node's capabilities of the moment in place of the tree's copies. A node without MIG has none.
func showCaps(dir, node string) error {
	for _, name := range capFolders() {
		from := filepath.Join(node, "proc/driver", name)
		if _, err := os.Stat(from); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := bind(from, filepath.Join(dir, "proc/driver", name)); err != nil {
			return err
		}
	}
	return nil
}

// enterUsr lays the tree's files over those of the machine.
func enterUsr(dir string) error {
	for _, name := range []string{programs, Libraries} {
		layers := "lowerdir=" + filepath.Join(dir, name) + ":/" + name
		if err := unix.Mount("overlay", "/"+name, "overlay", unix.MS_RDONLY, layers); err != nil {
			return fmt.Errorf("lay files over /%s: %w", name, err)
		}
	}
	return nil
}

// fill mounts a new file system of memory at a scratch folder, fills it, and moves it to the place it is for.
func fill(dir, place string, fill func(scratch string) error) error {
	scratch := filepath.Join(dir, ".scratch")
	if err := os.MkdirAll(scratch, folderMode); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	if err := unix.Mount("gpusim", scratch, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount memory: %w", err)
	}
	if err := fill(scratch); err != nil {
		return err
	}
	if err := unix.Mount(scratch, place, "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move to %q: %w", place, err)
	}
	return nil
}

// mirror shows an entry of a folder in another one.
func mirror(from, to string, e fs.DirEntry) error {
	from, to = filepath.Join(from, e.Name()), filepath.Join(to, e.Name())
	switch {
	case e.Type()&fs.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err != nil {
			return fmt.Errorf("read link: %w", err)
		}
		return os.Symlink(target, to)
	case e.IsDir():
		if err := os.Mkdir(to, folderMode); err != nil {
			return fmt.Errorf("make folder: %w", err)
		}
	default:
		if err := os.WriteFile(to, nil, fileMode); err != nil { // #nosec G306 -- a mount comes over it
			return fmt.Errorf("make file: %w", err)
		}
	}
	return bind(from, to)
}

// mirrorAll shows a folder in another one, without the entries that leave names.
func mirrorAll(from, to string, leave func(name string) bool) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return fmt.Errorf("read folder: %w", err)
	}
	for _, e := range entries {
		if !leave(e.Name()) {
			if err := mirror(from, to, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// enterDev shows the machine's devices without real GPUs, and the tree's.
func enterDev(dir string) error {
	return fill(dir, "/dev", func(scratch string) error {
		gpu := func(name string) bool { return strings.HasPrefix(name, "nvidia") }
		return errors.Join(mirrorAll("/dev", scratch, gpu),
			mirrorAll(filepath.Join(dir, "dev"), scratch, func(name string) bool { return !gpu(name) }))
	})
}

func enterRun(dir string) error {
	return fill(dir, "/run", func(scratch string) error {
		simulator := func(name string) bool { return name == "gpusim" }
		return errors.Join(mirrorAll("/run", scratch, simulator),
			mirrorAll(filepath.Join(dir, "run"), scratch, func(name string) bool { return !simulator(name) }))
	})
}

// enterSys shows the tree's devices of the PCI bus, and none else.
func enterSys(dir string) error {
	if _, err := os.Stat("/" + pciBus); errors.Is(err, fs.ErrNotExist) {
		return nil // a machine without a PCI bus has no place for them
	}
	return bind(filepath.Join(dir, pciBus), "/"+pciBus)
}

// enterProc shows the driver in /proc. A kernel without modules has no /proc/modules to bind over: there, /proc is a
// folder of links to a second /proc, with one file more. It shows the processes of the moment, and the program itself.
func enterProc(dir string) error {
	ours := []string{"driver", "modules", "devices"}
	if _, err := os.Stat("/proc/modules"); err == nil {
		for _, name := range ours {
			if err := bind(filepath.Join(dir, "proc", name), filepath.Join("/proc", name)); err != nil {
				return err
			}
		}
		return nil
	}
	second := filepath.Join(dir, ".proc")
	if err := os.MkdirAll(second, folderMode); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	if err := unix.Mount("proc", second, "proc", 0, ""); err != nil {
		return fmt.Errorf("mount proc: %w", err)
	}
	return fill(dir, "/proc", func(scratch string) error {
		entries, err := os.ReadDir(second)
		for _, e := range entries {
			if _, notPID := strconv.Atoi(e.Name()); notPID == nil || e.Name() == "driver" || e.Name() == "devices" {
				continue
			}
			err = errors.Join(err, os.Symlink(filepath.Join(second, e.Name()), filepath.Join(scratch, e.Name())))
		}
		for _, name := range ours {
			err = errors.Join(err, os.Symlink(filepath.Join(dir, "proc", name), filepath.Join(scratch, name)))
		}
		return err
	})
}
