// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sharing"
)

// checkRel refuses every path that is not plain names beneath the root group.
func checkRel(rel string) error {
	bad := func(problem string) error {
		return sharing.Invalid("cgroup", rel, "write names separated by single slashes, such as kerf/job-1", "%s",
			problem)
	}
	switch {
	case rel == "":
		return bad("is the root cgroup")
	case path.IsAbs(rel):
		return bad("is not relative")
	case len(rel) > unix.PathMax-1:
		return bad("is too long")
	}
	for name := range strings.SplitSeq(rel, "/") {
		switch {
		case name == "" || name == "." || name == "..":
			return bad("is not a clean path")
		case len(name) > unix.NAME_MAX:
			return bad("has a name that is too long")
		case strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }):
			return bad("has a control character")
		}
	}
	return nil
}

// rel turns an absolute directory into a path beneath the mount, and refuses the mount itself.
func (h Hierarchy) rel(dir string) (string, error) {
	if !within(dir, h.Mount) {
		return "", sharing.Invalid("cgroup", dir, fmt.Sprintf("name a directory beneath %q", h.Mount),
			"is not beneath the cgroup v2 mount")
	}
	rel := strings.TrimPrefix(strings.TrimPrefix(dir, h.Mount), "/")
	return rel, checkRel(rel)
}

// within reports whether p lies beneath dir, by name.
func within(p, dir string) bool {
	if dir == "/" {
		return len(p) > 1 && p[0] == '/'
	}
	return strings.HasPrefix(p, dir+"/")
}

// openDir opens the group rel beneath mount, through no link and over no other mount. It makes sure that it is in the
// cgroup v2 filesystem. If rel is "", it is the root group.
func openDir(mount, rel string) (int, error) {
	root, err := unix.Open(mount, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("%w (%w)", err, classify(err))
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(root, &st); err != nil || st.Type != unix.CGROUP2_SUPER_MAGIC {
		_ = unix.Close(root)
		return -1, fmt.Errorf("%q is not a cgroup v2 filesystem: %w", mount, sharing.ErrUnsupported)
	}
	if rel == "" {
		return root, nil
	}
	defer unix.Close(root)
	fd, err := unix.Openat2(root, rel, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	})
	if err != nil {
		return -1, fmt.Errorf("%w (%w)", err, classify(err))
	}
	return fd, nil
}

func inodeOf(fd int) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, fmt.Errorf("%w (%w)", err, classify(err))
	}
	return st.Ino, nil
}

// readAt reads a whole file of the group that is open as fd. It is asked for often, and the files are mostly of a few
// lines: they take no more than a buffer of their size.
func readAt(fd int, name string) ([]byte, error) {
	file, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(file)
	var data []byte
	var buf [512]byte
	for {
		n, err := unix.Read(file, buf[:])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, err
		case n == 0:
			return data, nil
		default:
			data = append(data, buf[:n]...)
		}
	}
}

func openAt(fd int, name string, flags int) (*os.File, error) {
	n, err := unix.Openat(fd, name, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(n), name), nil
}

// writeAt writes one file of the group that is open as fd.
func writeAt(fd int, name, value string) error {
	f, err := openAt(fd, name, unix.O_WRONLY)
	if err != nil {
		return fmt.Errorf("%w (%w)", err, classify(err))
	}
	_, err = f.WriteString(value)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("%w (%w)", err, classify(err))
	}
	return nil
}

// childNames lists the directories in the group that is open as fd, sorted.
func childNames(fd int) ([]string, error) {
	// A fresh descriptor, since reading a directory moves the position that duplicates share.
	f, err := openAt(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, fmt.Errorf("%w (%w)", err, classify(err))
	}
	defer f.Close()
	entries, err := f.ReadDir(-1)
	if err != nil {
		return nil, fmt.Errorf("%w (%w)", err, classify(err))
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

// classify returns the word of the vocabulary that a system error means here.
func classify(err error) error {
	is := func(codes ...error) bool {
		return slices.ContainsFunc(codes, func(c error) bool { return errors.Is(err, c) })
	}
	switch {
	case is(unix.ENOENT, unix.ESRCH, unix.ENODEV):
		// ENODEV is what an open file of a removed group answers.
		return sharing.ErrNotFound
	case is(unix.EEXIST):
		return sharing.ErrConflict
	case is(unix.EACCES, unix.EPERM, unix.EROFS):
		return sharing.ErrDenied
	case is(unix.ELOOP, unix.EXDEV, unix.ENOTDIR, unix.EINVAL, unix.ENAMETOOLONG):
		return sharing.ErrInvalid
	case is(unix.ENOSYS, unix.EOPNOTSUPP):
		return sharing.ErrUnsupported
	case is(unix.EAGAIN):
		return sharing.ErrExhausted // mkdir past cgroup.max.descendants or cgroup.max.depth
	}
	return sharing.ErrUnavailable
}

// Beneath reports whether the cgroup dir is group, or in its sub-tree.
func Beneath(dir, group string) bool { return dir == group || strings.HasPrefix(dir, group+"/") }

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

// Return moves process pid, with all its threads, back to o. If o was removed meanwhile, or another group has its path,
// the process goes to the nearest group above that takes it. The limits of those still apply. The root group takes any
// process. A process that has exited is no error. Return reports where the process went; empty is the root.
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
