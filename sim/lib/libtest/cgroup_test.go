// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libtest_test

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/kerf-gpu/kerf/test/eventually"
)

// cgroup makes a cgroup v2 directory for a test; without a cgroup v2 mount the test cannot be.
func cgroup(t *testing.T) string {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(string(mounts)) {
		before, after, _ := strings.Cut(l, " - ")
		f := strings.Fields(before)
		if !strings.HasPrefix(after, "cgroup2 ") || len(f) < 5 || f[3] != "/" {
			continue
		}
		dir, err := os.MkdirTemp(f[4], "kerf-libtest-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { eventually.True(t, "remove "+dir, func() bool { return os.Remove(dir) == nil }) })
		return dir
	}
	t.Skip("not supported: no cgroup v2 is mounted")
	return ""
}

// inside has a program begin its life in a cgroup.
func inside(t *testing.T, cmd *exec.Cmd, dir string) {
	t.Helper()
	f, err := os.Open(dir) // #nosec G304 -- the test's own
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(f.Fd())} // #nosec G115 -- a descriptor
}
