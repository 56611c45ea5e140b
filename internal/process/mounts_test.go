// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// A program in mounts of its own, as in a container, is told from one that shares them.
func TestSharesMounts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounts of its own need root")
	}
	for flags, want := range map[uintptr]bool{0: true, syscall.CLONE_NEWNS: false} {
		cmd := exec.CommandContext(t.Context(), "cat")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: flags}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if shares, err := sharesMounts(cmd.Process.Pid); err != nil || shares != want {
			t.Errorf("with flags %#x: %v, %v", flags, shares, err)
		}
		if err := in.Close(); err != nil {
			t.Error(err)
		}
		waitExited(t, cmd.Process.Pid)
		if _, err := sharesMounts(cmd.Process.Pid); err == nil { // not yet reaped: its pid is nobody else's
			t.Error("a process that has ended shares mounts")
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}
