// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"bufio"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

// Find returns the cgroup v2 hierarchy that a mountinfo table (proc(5)) shows. Of several mounts the usual
// place wins, then that of hybrid systems, then the table's order. A mount of only a part of the hierarchy
// does not count. It is sharing.ErrUnsupported when there is none. It reads only the table; Default checks
// the filesystem too.
func Find(mountinfo io.Reader) (Hierarchy, error) {
	all, err := candidates(mountinfo)
	if err != nil {
		return Hierarchy{}, err
	}
	if len(all) == 0 {
		return Hierarchy{}, errNone()
	}
	return Hierarchy{Mount: all[0]}, nil
}

func errNone() error {
	return fmt.Errorf("find cgroup v2: no mount of the whole hierarchy in the mount table: %w", sharing.ErrUnsupported)
}

// candidates returns the mount points of whole cgroup v2 hierarchies, best first.
func candidates(mountinfo io.Reader) ([]string, error) {
	var found []string
	lines := bufio.NewScanner(mountinfo)
	lines.Buffer(nil, 1<<20) // overlay mounts have very long options
	for lines.Scan() {
		m, ok := parseMount(lines.Text())
		if !ok {
			continue // a line in a form that is not known is not ours to judge
		}
		// A later mount at the same place, or above it, hides an earlier one.
		found = slices.DeleteFunc(found, func(p string) bool { return p == m.point || within(p, m.point) })
		if m.fstype == "cgroup2" && m.root == "/" && path.IsAbs(m.point) {
			found = append(found, m.point)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read mount table: %w (%w)", err, sharing.ErrUnavailable)
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

type mount struct{ root, point, fstype string }

// parseMount reads one line: id, parent, device, root, mount point, options, optional fields, "-", type,
// source, options.
func parseMount(line string) (mount, bool) {
	before, after, ok := strings.Cut(line, " - ")
	if !ok {
		return mount{}, false
	}
	f, t := strings.Fields(before), strings.Fields(after)
	if len(f) < 6 || len(t) < 1 {
		return mount{}, false
	}
	return mount{root: unescape(f[3]), point: unescape(f[4]), fstype: t[0]}, true
}

// unescape undoes the kernel's octal escapes (\040 is a space).
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) && s[i+1] <= '3' && octal(s[i+1]) && octal(s[i+2]) && octal(s[i+3]) {
			b.WriteByte((s[i+1]-'0')<<6 | (s[i+2]-'0')<<3 | (s[i+3] - '0'))
			i += 3
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func octal(c byte) bool { return c >= '0' && c <= '7' }
