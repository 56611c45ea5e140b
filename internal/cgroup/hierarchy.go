// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package cgroup is the one adapter to cgroup v2. It finds the hierarchy, makes and removes groups, moves processes
// into them, and reports when a group becomes empty.
//
// A group is identified by its directory and that directory's inode. The kernel reuses no inode number of the cgroup
// filesystem within a boot. So a new group of the same name is never taken for the old one. Every operation opens the
// directory below the mount, without following a link or leaving the filesystem. It compares the inode first.
//
// It promises to touch nothing outside the mount, and of the root group nothing but that Enable adds a
// controller to those of its children. It writes no limit; limits on GPU memory are the driver's (see package caps).
// Version 1 hierarchies are not supported; on a hybrid system the version 2 one is found wherever it is mounted.
package cgroup

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/internal/mounttable"
	"github.com/kerf-gpu/kerf/sharing"
)

const dirMode = 0o755

// Hierarchy is the mounted cgroup v2 tree.
type Hierarchy struct {
	// Mount is the absolute path at which the root group is mounted.
	Mount string
}

// Default returns this machine's cgroup v2 hierarchy. It is sharing.ErrUnsupported when there is none.
func Default() (Hierarchy, error) {
	f, err := os.Open(mounttable.Own)
	if err != nil {
		return Hierarchy{}, fmt.Errorf("find cgroup v2: %w (%w)", err, sharing.ErrUnavailable)
	}
	defer f.Close()
	all, err := candidates(f)
	if err != nil {
		return Hierarchy{}, err
	}
	for _, p := range all {
		if isCgroup2(p) {
			return Hierarchy{Mount: p}, nil
		}
	}
	return Hierarchy{}, fmt.Errorf("find cgroup v2: no mount of the whole hierarchy in the mount table: %w",
		sharing.ErrUnsupported)
}

func isCgroup2(p string) bool {
	var st unix.Statfs_t
	return unix.Statfs(p, &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC
}

// Create makes the group rel (a path relative to the mount) and, if they are missing, the groups above it. The group
// rel itself must be new: sharing.ErrConflict otherwise. An error removes the groups that it made. Other errors:
// sharing.ErrInvalid (path), sharing.ErrDenied, sharing.ErrExhausted (the kernel's cgroup.max.descendants or depth),
// sharing.ErrUnavailable.
func (h Hierarchy) Create(rel string) (_ Group, err error) {
	if err := checkRel(rel); err != nil {
		return Group{}, err
	}
	var made []string
	defer func() {
		if err != nil {
			for _, m := range slices.Backward(made) {
				_ = unix.Rmdir(m) // another may have put something in; then it is not ours alone any more
			}
		}
	}()
	parts := strings.Split(rel, "/")
	for i := range parts {
		parent, err := openDir(h.Mount, path.Join(parts[:i]...))
		if err != nil {
			return Group{}, fmt.Errorf("create cgroup %q: %w", rel, err)
		}
		err = unix.Mkdirat(parent, parts[i], dirMode)
		_ = unix.Close(parent)
		switch {
		case err == nil:
			made = append(made, path.Join(h.Mount, path.Join(parts[:i+1]...)))
		case errors.Is(err, unix.EEXIST) && i < len(parts)-1:
		default:
			return Group{}, fmt.Errorf("create cgroup %q: %w (%w)", rel, err, classify(err))
		}
	}
	return h.Open(path.Join(h.Mount, rel), 0)
}

// Open returns the group at dir, an absolute path beneath the mount. With an inode other than 0 it must be the group
// that had this inode: sharing.ErrStale otherwise. It is sharing.ErrNotFound if there is no group. It is
// sharing.ErrInvalid if dir is no clean path beneath the mount or leads over a link.
func (h Hierarchy) Open(dir string, inode uint64) (Group, error) {
	rel, err := h.rel(dir)
	if err != nil {
		return Group{}, err
	}
	fd, err := openDir(h.Mount, rel)
	if err != nil {
		return Group{}, fmt.Errorf("open cgroup %q: %w", dir, err)
	}
	defer unix.Close(fd)
	ino, err := inodeOf(fd)
	if err != nil {
		return Group{}, fmt.Errorf("open cgroup %q: %w", dir, err)
	}
	if inode != 0 && ino != inode {
		return Group{}, fmt.Errorf("open cgroup %q: has inode %d, not %d: %w", dir, ino, inode, sharing.ErrStale)
	}
	return Group{Dir: dir, Inode: ino, mount: h.Mount}, nil
}

// Group is the group that was found at dir with that inode. It is not looked at: whether it is still there, its methods
// tell.
func (h Hierarchy) Group(dir string, inode uint64) Group {
	return Group{Dir: dir, Inode: inode, mount: h.Mount}
}

// Children returns the names of the groups directly beneath rel, sorted; rel "" is the root group. It is
// sharing.ErrNotFound when there is no such group.
func (h Hierarchy) Children(rel string) ([]string, error) {
	if rel != "" {
		if err := checkRel(rel); err != nil {
			return nil, err
		}
	}
	fd, err := openDir(h.Mount, rel)
	if err != nil {
		return nil, fmt.Errorf("list cgroups of %q: %w", rel, err)
	}
	defer unix.Close(fd)
	names, err := childNames(fd)
	if err != nil {
		return nil, fmt.Errorf("list cgroups of %q: %w", rel, err)
	}
	return names, nil
}

// OfProcess returns the absolute directory of the group that process pid is in. Errors:
//   - sharing.ErrNotFound: no such process
//   - sharing.ErrStale: its group has been removed; only a dying process is in one
//   - sharing.ErrDenied: its group is outside what this cgroup namespace shows
//   - sharing.ErrUnsupported: it is in no cgroup v2 group
func (h Hierarchy) OfProcess(pid int) (string, error) {
	if pid <= 0 {
		return "", fmt.Errorf("read cgroup of process %d: %w", pid, sharing.ErrInvalid)
	}
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return "", fmt.Errorf("read cgroup of process %d: %w (%w)", pid, err, classify(err))
	}
	rel, err := parseProcCgroup(string(data))
	if err != nil {
		return "", fmt.Errorf("read cgroup of process %d: %w", pid, err)
	}
	return path.Join(h.Mount, rel), nil
}

// parseProcCgroup reads the version 2 line ("0::PATH") of /proc/PID/cgroup.
func parseProcCgroup(s string) (string, error) {
	for line := range strings.Lines(s) {
		p, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::")
		if !ok {
			continue
		}
		switch {
		case strings.HasSuffix(p, " (deleted)"):
			return "", fmt.Errorf("cgroup %q was removed: %w", p, sharing.ErrStale)
		case !path.IsAbs(p):
			return "", fmt.Errorf("cgroup %q is no path: %w", p, sharing.ErrUnavailable)
		case slices.Contains(strings.Split(p, "/"), ".."):
			return "", fmt.Errorf("cgroup %q is outside this cgroup namespace: %w", p, sharing.ErrDenied)
		}
		return p, nil
	}
	return "", fmt.Errorf("no cgroup v2 line: %w", sharing.ErrUnsupported)
}

// Controllers returns the controllers that the root group offers, sorted. On a hybrid system those that
// version 1 has taken are missing.
func (h Hierarchy) Controllers() ([]string, error) {
	fd, err := openDir(h.Mount, "")
	if err != nil {
		return nil, fmt.Errorf("read cgroup controllers: %w", err)
	}
	defer unix.Close(fd)
	data, err := readAt(fd, "cgroup.controllers")
	if err != nil {
		return nil, fmt.Errorf("read cgroup controllers: %w (%w)", err, classify(err))
	}
	names := strings.Fields(string(data))
	slices.Sort(names)
	return names, nil
}

// HasDmem reports whether the kernel offers the dmem controller (Linux 6.14), which the driver's memory limits then
// use. Without it the driver keeps its own flat table, where only the nearest limited group above a process counts.
func (h Hierarchy) HasDmem() (bool, error) {
	names, err := h.Controllers()
	return slices.Contains(names, "dmem"), err
}

// candidates returns the mount points of whole cgroup v2 hierarchies in a mount table (proc(5)). The usual place comes
// first, then that of hybrid systems, then the others in the table's order. A mount of a part of the hierarchy does not
// count.
func candidates(table io.Reader) ([]string, error) {
	var found []string
	err := mounttable.Each(table, func(m *mounttable.Mount) {
		// A later mount at the same place, or above it, hides an earlier one.
		found = slices.DeleteFunc(found, func(p string) bool { return p == m.Mountpoint || within(p, m.Mountpoint) })
		if m.FSType == "cgroup2" && m.Root == "/" && path.IsAbs(m.Mountpoint) {
			found = append(found, m.Mountpoint)
		}
	})
	if err != nil {
		return nil, err
	}
	rank := func(p string) int {
		if i := slices.Index([]string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}, p); i >= 0 {
			return i
		}
		return 2
	}
	slices.SortStableFunc(found, func(a, b string) int { return rank(a) - rank(b) })
	return found, nil
}

// V1Mounted reports whether a cgroup v1 hierarchy is mounted, as on a hybrid system. It is sharing.ErrUnavailable
// if the mount table cannot be read.
func V1Mounted() (bool, error) {
	f, err := os.Open(mounttable.Own)
	if err != nil {
		return false, fmt.Errorf("find cgroup v1: %w (%w)", err, sharing.ErrUnavailable)
	}
	defer f.Close()
	return hasV1(f)
}

func hasV1(table io.Reader) (bool, error) {
	found := false
	err := mounttable.Each(table, func(m *mounttable.Mount) { found = found || m.FSType == "cgroup" })
	return found, err
}
