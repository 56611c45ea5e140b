// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"runtime"
	"syscall"
	"time"

	"github.com/kerf-gpu/kerf/internal/process"
)

const (
	// slack is how late a thread may wake up. It is short compared with the shortest sample interval.
	slack = time.Millisecond
	// relaxed, in the environment, says that this program has started itself again for that.
	relaxed = "KERF_MONITOR_RELAXED"
)

// relax has the threads of this program woken together: it starts itself again for that, once. Without, it only costs
// more.
func relax() {
	if os.Getenv(relaxed) != "" {
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if better, err := process.RelaxTimers(slack); better && err == nil {
		_ = again(relaxed + "=true")
	}
}

// again starts this very program again in its place, as it was started, with more in its environment; it returns only
// an error.
func again(more ...string) error {
	env := append(os.Environ(), more...)
	if path, err := os.Executable(); err == nil {
		_ = syscall.Exec(path, os.Args, env) //nolint:gosec // itself; it is called by its name
	}
	return syscall.Exec("/proc/self/exe", os.Args, env) //nolint:gosec // also where its file is gone
}
