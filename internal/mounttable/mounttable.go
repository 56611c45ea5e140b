// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package mounttable reads mount tables of Linux (proc(5), mountinfo).
package mounttable

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"

	"github.com/kerf-gpu/kerf/sharing"
)

// Own is the file with the mount table of this process.
const Own = "/proc/self/mountinfo"

// Mount is a mount of a table.
type Mount = mountinfo.Info

// Each visits the mounts of a table in its order. It leaves out malformed lines. It is sharing.ErrUnavailable if the
// table cannot be read.
func Each(table io.Reader, visit func(*Mount)) error {
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

// Of returns the mount that has the file at a path, of the mounts of one table. Nil means that the table has no root.
func Of(mounts []*Mount, path string) *Mount {
	at := slices.IndexFunc(mounts, func(m *Mount) bool {
		return m.Mountpoint == "/" && !slices.ContainsFunc(mounts, func(p *Mount) bool { return p.ID == m.Parent })
	})
	if at < 0 {
		return nil
	}
	found := mounts[at]
	for next := found; next != nil; {
		found, next = next, nil
		// The lookup of a path enters the first mount on its way, which can hide mounts below it.
		for _, m := range mounts {
			if m.Parent == found.ID && m != found && within(path, m.Mountpoint) &&
				(next == nil || len(m.Mountpoint) < len(next.Mountpoint)) {
				next = m
			}
		}
	}
	return found
}

// within reports whether a path is a folder or is below it.
func within(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, strings.TrimSuffix(folder, "/")+"/")
}
