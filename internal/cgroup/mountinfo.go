// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"path"
	"slices"

	"github.com/moby/sys/mountinfo"

	"github.com/kerf-gpu/kerf/sharing"
)

// candidates returns the mount points of whole cgroup v2 hierarchies in a mount table (proc(5)). The usual place comes
// first, then that of hybrid systems, then the others in the table's order. A mount of a part of the hierarchy does not
// count.
func candidates(table io.Reader) ([]string, error) {
	var found []string
	err := eachMount(table, func(m *mountinfo.Info) {
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
	f, err := os.Open(mountinfoPath)
	if err != nil {
		return false, fmt.Errorf("find cgroup v1: %w (%w)", err, sharing.ErrUnavailable)
	}
	defer f.Close()
	return hasV1(f)
}

func hasV1(table io.Reader) (bool, error) {
	found := false
	err := eachMount(table, func(m *mountinfo.Info) { found = found || m.FSType == "cgroup" })
	return found, err
}

// eachMount visits the mounts of a table in its order.
func eachMount(table io.Reader, visit func(*mountinfo.Info)) error {
	lines := bufio.NewScanner(table)
	lines.Buffer(nil, 1<<20) // overlay mounts have very long options
	for lines.Scan() {
		// The library fails the whole table for one line that is malformed or longer than 64 KiB. Neither must hide the
		// other mounts, so it parses each line alone.
		parsed, err := mountinfo.GetMountsFromReader(bytes.NewReader(lines.Bytes()), nil)
		if err == nil && len(parsed) == 1 {
			visit(parsed[0])
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read mount table: %w (%w)", err, sharing.ErrUnavailable)
	}
	return nil
}
