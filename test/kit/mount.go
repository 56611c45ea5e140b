// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/kerf-gpu/kerf/test/kit/bench"
)

// mountedEnv has the folder of the cgroup v2 that the kit mounts, in the process that mounts it.
const mountedEnv = "KERF_KIT_CGROUP"

// inOwnMounts gives root a cgroup v2 if the machine has none that can be written. The kit then runs once more in a
// mount namespace, so that the machine's mounts stay as they are. If this process is the one that measures, done is
// false.
func inOwnMounts(ctx context.Context) (status int, done bool) {
	if dir := os.Getenv(mountedEnv); dir != "" {
		if err := syscall.Mount("kerf-kit", dir, "cgroup2", 0, ""); err != nil {
			fmt.Println("         no cgroup v2 can be mounted:", err)
		}
		return 0, false
	}
	if _, err := bench.Cgroup2(); err == nil || os.Getuid() != 0 {
		return 0, false
	}
	self, err := os.Executable()
	if err != nil {
		return 0, false
	}
	dir, err := os.MkdirTemp("", "kitcg")
	if err != nil {
		return 0, false
	}
	defer os.RemoveAll(dir)
	cmd := exec.CommandContext(ctx, self, os.Args[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Env = append(os.Environ(), mountedEnv+"="+dir)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if err := cmd.Start(); err != nil { // no CAP_SYS_ADMIN: without a cgroup v2, then
		return 0, false
	}
	signal.Ignore(syscall.SIGHUP)
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "kit:", err)
		return 2, true
	}
	return cmd.ProcessState.ExitCode(), true
}
