// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sharing"
)

// Origin is the group that a process was in before it was moved. The root group can be one.
type Origin struct {
	// Path is relative to the mount; empty for the root group.
	Path string
	// Inode is the directory's inode number.
	Inode uint64
}

// String is the form that ParseOrigin reads.
func (o Origin) String() string { return strconv.FormatUint(o.Inode, 10) + ":" + o.Path }

// ParseOrigin reads what Origin.String wrote. It is sharing.ErrInvalid for anything else.
func ParseOrigin(s string) (Origin, error) {
	inode, rel, found := strings.Cut(s, ":")
	n, err := strconv.ParseUint(inode, 10, 64)
	if err == nil && rel != "" {
		err = checkRel(rel)
	}
	if !found || err != nil {
		return Origin{}, fmt.Errorf("parse origin %q: %w", s, errors.Join(sharing.ErrInvalid, err))
	}
	return Origin{Path: rel, Inode: n}, nil
}

// OriginOf tells which group process pid is in. Errors are those of OfProcess.
func (h Hierarchy) OriginOf(pid int) (Origin, error) {
	dir, err := h.OfProcess(pid)
	if err != nil {
		return Origin{}, err
	}
	rel := strings.TrimPrefix(strings.TrimPrefix(dir, h.Mount), "/")
	fd, err := openDir(h.Mount, rel)
	if err != nil {
		return Origin{}, fmt.Errorf("open cgroup %q of process %d: %w", dir, pid, err)
	}
	defer unix.Close(fd)
	inode, err := inodeOf(fd)
	if err != nil {
		return Origin{}, fmt.Errorf("open cgroup %q of process %d: %w", dir, pid, err)
	}
	return Origin{Path: rel, Inode: inode}, nil
}

// Return moves process pid, with all its threads, back to o. If o was removed meanwhile, or another group has its
// path, the process goes to the nearest group above that takes it: the limits of those still apply. The root group
// takes any process. A process that has exited is no error. Return tells where the process went; empty is the root.
func (h Hierarchy) Return(pid int, o Origin) (to string, err error) {
	var errs []error
	for rel, inode := o.Path, o.Inode; ; rel, inode = above(rel), 0 {
		err := h.addTo(rel, inode, pid)
		if err == nil || exited(err) {
			return rel, nil
		}
		errs = append(errs, fmt.Errorf("cgroup %q: %w", "/"+rel, err))
		if rel == "" {
			return "", fmt.Errorf("return process %d to its cgroup: %w", pid, errors.Join(errs...))
		}
	}
}

func exited(err error) bool { return errors.Is(err, unix.ESRCH) }

// above is the group that holds rel.
func above(rel string) string {
	if dir := path.Dir(rel); dir != "." {
		return dir
	}
	return ""
}

// addTo moves a process into the group rel, which has the inode unless that is 0.
func (h Hierarchy) addTo(rel string, inode uint64, pid int) error {
	fd, err := openDir(h.Mount, rel)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if has, err := inodeOf(fd); err != nil || inode != 0 && has != inode {
		return errors.Join(err, sharing.ErrStale)
	}
	return writeAt(fd, procsFile, strconv.Itoa(pid))
}
