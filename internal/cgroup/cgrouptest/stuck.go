// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package cgrouptest makes what tests of the cgroup freezer need. It is no part of the product.
package cgrouptest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Unanswered returns a path on a file system whose server never answers. A thread that opens it waits in the kernel
// without interruption: the freezer cannot stop it, and SIGKILL ends it. When the test ends, the thread gets an error
// and continues. The test is skipped where FUSE is missing or the caller may not mount.
func Unanswered(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	server, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skip("no FUSE here:", err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", server)
	if err := unix.Mount("unanswered", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		_ = unix.Close(server)
		t.Skip("no FUSE mount here:", err)
	}
	t.Cleanup(func() {
		// The connection ends with its last descriptor, and all who wait get an error.
		_ = unix.Close(server)
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error("unmount:", err)
		}
	})
	return filepath.Join(dir, "file")
}

// IsWaiting reports whether a thread of the process waits for Unanswered's server. The state D alone does not show
// that. A program that is read from the disk has it too, and the freezer stops such a thread a moment later.
func IsWaiting(t testing.TB, pid int) bool {
	t.Helper()
	channels, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/wchan", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, channel := range channels {
		function, err := os.ReadFile(channel) // the kernel function in which the thread sleeps, such as fuse_get_req
		if err == nil && strings.Contains(string(function), "fuse") {
			return true
		}
	}
	return false
}
