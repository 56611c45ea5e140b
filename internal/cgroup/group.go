// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sharing"
)

// Group is one control group. It is a value that names the group and holds nothing open; make one with
// Hierarchy.Create or Hierarchy.Open. Each method is sharing.ErrNotFound when the group is gone and
// sharing.ErrStale when another one stands in its place, except where it says otherwise.
type Group struct {
	// Dir is the group's absolute directory.
	Dir string
	// Inode is the directory's inode number, which tells this group from any other of this boot.
	Inode uint64

	mount string
}

func (g Group) hierarchy() Hierarchy { return Hierarchy{Mount: g.mount} }

// open opens the group's directory and makes sure that it is still this group.
func (g Group) open() (int, error) {
	rel, err := g.hierarchy().rel(g.Dir)
	if err != nil {
		return -1, err
	}
	fd, err := openDir(g.mount, rel)
	if err != nil {
		return -1, err
	}
	ino, err := inodeOf(fd)
	if err == nil && ino != g.Inode {
		err = fmt.Errorf("has inode %d, not %d: %w", ino, g.Inode, sharing.ErrStale)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// Add moves process pid, with all its threads, into the group. Errors besides the usual: sharing.ErrNotFound also when
// the process is gone, and sharing.ErrDenied. It is sharing.ErrUnavailable if the kernel takes no process into this
// group, which has children with controllers.
func (g Group) Add(pid int) error {
	if pid <= 0 {
		// 0 would mean the writer itself.
		return fmt.Errorf("add process %d to cgroup %q: %w", pid, g.Dir, sharing.ErrInvalid)
	}
	if err := g.write(procsFile, strconv.Itoa(pid)); err != nil {
		return fmt.Errorf("add process %d: %w", pid, err)
	}
	return nil
}

// Procs returns the processes in the group and in all groups beneath it, sorted, each once. A process that
// this pid namespace cannot see is left out; Populated counts it.
func (g Group) Procs() ([]int, error) {
	fd, err := g.open()
	if err != nil {
		return nil, fmt.Errorf("list processes of cgroup %q: %w", g.Dir, err)
	}
	defer unix.Close(fd)
	pids, err := procsBeneath(fd)
	if err != nil {
		return nil, fmt.Errorf("list processes of cgroup %q: %w", g.Dir, err)
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil // a process that moved while we walked was seen twice
}

func procsBeneath(fd int) ([]int, error) {
	data, err := readAt(fd, procsFile)
	// EOPNOTSUPP: a threaded group; its processes are listed by the domain above it.
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return nil, fmt.Errorf("%w (%w)", err, classify(err))
	}
	pids, err := parseProcs(data)
	if err != nil {
		return nil, err
	}
	err = eachChild(fd, func(child int, _ string) error {
		below, err := procsBeneath(child)
		pids = append(pids, below...)
		return err
	})
	return pids, err
}

// eachChild opens each group directly beneath fd and calls do with it. A group that goes away meanwhile is
// passed over.
func eachChild(fd int, do func(child int, name string) error) error {
	names, err := childNames(fd)
	if err != nil {
		return err
	}
	for _, name := range names {
		child, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return fmt.Errorf("open child %q: %w (%w)", name, err, classify(err))
		}
		err = do(child, name)
		_ = unix.Close(child)
		if err != nil && !errors.Is(err, sharing.ErrNotFound) {
			return err
		}
	}
	return nil
}

// parseProcs reads cgroup.procs: one pid per line, 0 for a process of another pid namespace.
func parseProcs(data []byte) ([]int, error) {
	var pids []int
	for line := range strings.Lines(string(data)) {
		pid, err := strconv.ParseUint(strings.TrimSuffix(line, "\n"), 10, 31)
		if err != nil {
			return nil, fmt.Errorf("parse "+procsFile+": %q is not a pid: %w", line, sharing.ErrUnavailable)
		}
		if pid > 0 {
			pids = append(pids, int(pid))
		}
	}
	return pids, nil
}

// Populated reports whether any process, zombies not counted, is in the group or beneath it, from
// the kernel's own account.
func (g Group) Populated() (bool, error) {
	fd, err := g.open()
	if err != nil {
		return false, fmt.Errorf("read state of cgroup %q: %w", g.Dir, err)
	}
	defer unix.Close(fd)
	p, err := populated(fd)
	if err != nil {
		return false, fmt.Errorf("read state of cgroup %q: %w", g.Dir, err)
	}
	return p, nil
}

func populated(fd int) (bool, error) {
	data, err := readAt(fd, eventsFile)
	if err != nil {
		return false, fmt.Errorf("%w (%w)", err, classify(err))
	}
	return parseEvents(data)
}

// parseEvents reads the "populated" line of cgroup.events.
func parseEvents(data []byte) (bool, error) {
	for line := range bytes.Lines(data) {
		switch strings.TrimSuffix(string(line), "\n") {
		case "populated 0":
			return false, nil
		case "populated 1":
			return true, nil
		}
	}
	return false, fmt.Errorf("parse cgroup.events: no state: %w", sharing.ErrUnavailable)
}

// Remove removes the group and the groups beneath it. Nothing is removed while a process is in any of them:
// sharing.ErrUnavailable. A group that is gone already is a success; one that another has taken the place of
// is sharing.ErrStale and stays.
func (g Group) Remove() error {
	err := g.remove()
	switch {
	case err == nil, errors.Is(err, sharing.ErrNotFound):
		return nil
	}
	return fmt.Errorf("remove cgroup %q: %w", g.Dir, err)
}

func (g Group) remove() error {
	fd, err := g.open()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	switch busy, err := populated(fd); {
	case err != nil:
		return err
	case busy:
		return fmt.Errorf("has processes: %w", sharing.ErrUnavailable)
	}
	if err := removeBeneath(fd); err != nil {
		return err
	}
	// By path, since a directory cannot be removed through its own descriptor. That it is still ours was
	// checked above, and none but its owner makes one of the same name.
	if err := unix.Rmdir(g.Dir); err != nil {
		return fmt.Errorf("%w (%w)", err, classify(err))
	}
	return nil
}

func removeBeneath(fd int) error {
	return eachChild(fd, func(child int, name string) error {
		if err := removeBeneath(child); err != nil {
			return err
		}
		if err := unix.Unlinkat(fd, name, unix.AT_REMOVEDIR); err != nil {
			return fmt.Errorf("child %q: %w (%w)", name, err, classify(err))
		}
		return nil
	})
}

// ProcsOf are the processes in groups, sorted. A group that is gone has none.
func ProcsOf(groups []Group) (all []int, err error) {
	for _, g := range groups {
		pids, err := g.Procs()
		if err != nil && !errors.Is(err, sharing.ErrNotFound) && !errors.Is(err, sharing.ErrStale) {
			return nil, err
		}
		all = append(all, pids...)
	}
	slices.Sort(all)
	return all, nil
}

// Enable makes a controller available in the groups below rel, by enabling it in rel and in every group above. It
// enables along this one path and disables nothing. Enabling a controller limits no process. Errors:
// sharing.ErrNotFound (no such group, or the kernel does not offer the controller), sharing.ErrDenied,
// sharing.ErrUnavailable (a group on the way has processes).
func (h Hierarchy) Enable(rel, controller string) error {
	if err := checkRel(rel); err != nil {
		return err
	}
	parts := strings.Split(rel, "/")
	for i := range len(parts) + 1 {
		if err := h.enableIn(path.Join(parts[:i]...), controller); err != nil {
			return fmt.Errorf("enable controller %q for cgroup %q: %w", controller, rel, err)
		}
	}
	return nil
}

func (h Hierarchy) enableIn(rel, controller string) error {
	fd, err := openDir(h.Mount, rel)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	has, err := readAt(fd, "cgroup.subtree_control")
	if err != nil {
		return fmt.Errorf("%w (%w)", err, classify(err))
	}
	if slices.Contains(strings.Fields(string(has)), controller) {
		return nil
	}
	if err := writeAt(fd, "cgroup.subtree_control", "+"+controller); err != nil {
		return fmt.Errorf("group %q: %w", "/"+rel, err)
	}
	return nil
}
