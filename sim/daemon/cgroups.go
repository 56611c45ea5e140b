// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sim/model"
	"github.com/kerf-gpu/kerf/sim/wire"
)

// hierarchy is the mounted cgroup v2 tree.
type hierarchy struct {
	mount string // empty: there is none, and no process is in a cgroup that counts
	root  string // the mount's root as paths in /proc/PID/cgroup name it, "/" unless only a part is mounted
}

func findHierarchy() (hierarchy, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return hierarchy{}, fmt.Errorf("find cgroup v2: %w", err)
	}
	return parseMountinfo(string(data)), nil
}

// parseMountinfo returns the first cgroup v2 mount, one of the whole tree before one of a part.
func parseMountinfo(text string) hierarchy {
	var found hierarchy
	for line := range strings.Lines(text) {
		before, after, ok := strings.Cut(line, " - ")
		f := strings.Fields(before)
		kind := strings.Fields(after)
		if !ok || len(f) < 5 || len(kind) < 1 || kind[0] != "cgroup2" {
			continue
		}
		h := hierarchy{root: unescape(f[3]), mount: unescape(f[4])}
		if found.mount == "" || (found.root != "/" && h.root == "/") {
			found = h
		}
	}
	return found
}

// unescape undoes the kernel's octal escapes (\040 for a blank).
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// dirOf returns the directory of a process's cgroup; empty for one outside the tree that is mounted here.
func (h hierarchy) dirOf(pid int) (string, error) {
	if h.mount == "" {
		return "", nil
	}
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return "", fmt.Errorf("cgroup of process %d: %w", pid, err)
	}
	for line := range strings.Lines(string(data)) {
		if p, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			return h.dir(p), nil
		}
	}
	return "", nil
}

// dir turns a path of /proc/PID/cgroup into a directory.
func (h hierarchy) dir(p string) string {
	if h.root != "/" {
		rest, ok := strings.CutPrefix(p, h.root)
		if !ok || (rest != "" && rest[0] != '/') {
			return ""
		}
		p = rest
	}
	if strings.HasPrefix(p, "/..") {
		return "" // outside this cgroup namespace
	}
	return path.Join(h.mount, p)
}

// chainOf returns a process's cgroup and those above it. The process may be moved while it is looked at, so
// a directory that is gone is looked for again.
func (h hierarchy) chainOf(pid int) (model.Chain, error) {
	var err error
	for range 3 {
		var dir string
		if dir, err = h.dirOf(pid); err != nil {
			return nil, err
		}
		if dir == "" {
			return nil, nil
		}
		var chain model.Chain
		if chain, err = h.chain(dir); err == nil {
			return chain, nil
		}
	}
	return nil, fmt.Errorf("cgroup of process %d: %w", pid, err)
}

// chain returns the groups from dir, a path beneath the mount, up to below the mount.
func (h hierarchy) chain(dir string) (model.Chain, error) {
	var chain model.Chain
	for dir != h.mount {
		var st unix.Stat_t
		if err := unix.Lstat(dir, &st); err != nil {
			return nil, fmt.Errorf("look at cgroup %q: %w", dir, err)
		}
		chain = append(chain, model.Group{ID: st.Ino, Dir: dir})
		dir = path.Dir(dir)
		if len(dir) < len(h.mount) {
			return nil, fmt.Errorf("look at cgroup: not beneath %q", h.mount)
		}
	}
	return chain, nil
}

// resolve finds the cgroup that a process means by an absolute path: in its mount namespace and beneath its
// root directory, as a library in it opens one. It is wire.CannotOpen when that is no directory of cgroup v2.
func (h hierarchy) resolve(pid int, dir string) (model.Chain, error) {
	if !path.IsAbs(dir) || strings.ContainsRune(dir, 0) || h.mount == "" {
		return nil, wire.CannotOpen
	}
	root, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/root", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("root of process %d: %w", pid, err)
	}
	defer unix.Close(root)
	fd, err := unix.Openat2(root, dir, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, wire.CannotOpen
	}
	defer unix.Close(fd)
	var fst unix.Statfs_t
	var st unix.Stat_t
	if err := errors.Join(unix.Fstatfs(fd, &fst), unix.Fstat(fd, &st)); err != nil {
		return nil, fmt.Errorf("look at cgroup %q: %w", dir, err)
	}
	if int64(fst.Type) != unix.CGROUP2_SUPER_MAGIC { //nolint:unconvert // the type differs by architecture
		return nil, wire.CannotOpen
	}
	return h.locate(st.Ino, path.Clean(dir))
}

// locate finds the directory with an inode, which has another path here when the process that named it sees
// another part of the tree. hint is looked at first.
func (h hierarchy) locate(ino uint64, hint string) (model.Chain, error) {
	is := func(p string) bool {
		var st unix.Stat_t
		return unix.Lstat(p, &st) == nil && st.Ino == ino
	}
	if (hint == h.mount || strings.HasPrefix(hint, h.mount+"/")) && is(hint) {
		return h.chain(hint)
	}
	at := ""
	err := filepath.WalkDir(h.mount, func(p string, e fs.DirEntry, err error) error {
		switch {
		case err != nil || !e.IsDir():
			return nil //nolint:nilerr // groups come and go during the walk
		case is(p):
			at = p
			return fs.SkipAll
		}
		return nil
	})
	if err != nil || at == "" {
		return nil, wire.CannotOpen
	}
	return h.chain(at)
}

// alive reports whether a group is still where it was. No group is ever moved, and no inode used again.
func (h hierarchy) alive(g model.Group) bool {
	var st unix.Stat_t
	return unix.Lstat(g.Dir, &st) == nil && st.Ino == g.ID
}
