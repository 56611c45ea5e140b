// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package lists

import (
	"fmt"
	"path/filepath"

	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sharing"
)

// Node is the Kernel of the machine that this program runs on. It must see the machine's processes.
type Node struct {
	// CgroupOf is the directory of the cgroup that a process is in; see Kernel.
	CgroupOf func(pid int) (string, error)
	// DevRoot is the directory that holds dev/nvidiaN.
	DevRoot string
}

// Cgroup implements Kernel, as do the others.
func (n Node) Cgroup(pid int) (string, error) { return n.CgroupOf(pid) }

// Start is read from /proc.
func (Node) Start(pid int) (uint64, error) { return process.StartOf(pid) }

// Open looks for the file that is at its place now: a driver that is loaded again makes another one.
func (n Node) Open(pid, minor int) (bool, error) {
	file, err := process.DeviceFileAt(filepath.Join(n.DevRoot, "dev", fmt.Sprintf("nvidia%d", minor)))
	if err != nil {
		// Not the caller's ErrNotFound, which is about the process.
		return false, fmt.Errorf("%s: %w", err.Error(), sharing.ErrUnavailable)
	}
	open, err := process.OpenDevices(pid, []process.DeviceFile{file})
	if err != nil {
		return false, err
	}
	return open[0], nil
}

// Now is the kernel's clock.
func (Node) Now() uint64 { return process.Now() }
