// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nodefiles

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/internal/mounttable"
	"github.com/kerf-gpu/kerf/sharing/doctor/preset"
)

// refused reports whether a socket has no listener.
func refused(err error) bool { return errors.Is(err, unix.ECONNREFUSED) }

// readMounts reads the mount table of the node. own is the table of this process. A read-only mount of the node's root
// folder hides the flags of that file system, so that own does not have them. The table of the node's first process
// does.
func readMounts(root, own string) ([]*mounttable.Mount, error) {
	here, err := readTable(own)
	if err != nil || root == "/" {
		return here, err
	}
	table, err := readTable(filepath.Join(root, "proc/1/mountinfo"))
	if err != nil {
		return nil, err
	}
	mounted, top := mounttable.Of(here, root), mounttable.Of(table, "/")
	if mounted == nil || top == nil || mounted.Mountpoint != root || mounted.Root != top.Root ||
		mounted.Major != top.Major || mounted.Minor != top.Minor {
		return nil, fmt.Errorf("%s is not the root folder of the node's first process", root)
	}
	return table, nil
}

func readTable(file string) ([]*mounttable.Mount, error) {
	f, err := os.Open(file) // #nosec G304 -- the caller names the table
	if err != nil {
		return nil, fmt.Errorf("read mount table: %w", err)
	}
	defer func() { _ = f.Close() }()
	var out []*mounttable.Mount
	err = mounttable.Each(f, func(m *mounttable.Mount) { out = append(out, m) })
	return out, err //nolint:wrapcheck // it says what it did
}

// flagsOf are the flags of the file system that has a path; nil if they are unknown.
func flagsOf(table []*mounttable.Mount, path string) *preset.Mount {
	m := mounttable.Of(table, path)
	if m == nil {
		return nil
	}
	options := strings.Split(m.Options+","+m.VFSOptions, ",")
	return &preset.Mount{ReadOnly: slices.Contains(options, "ro"), NoExec: slices.Contains(options, "noexec")}
}
