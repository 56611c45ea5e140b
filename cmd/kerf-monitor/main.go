// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Command kerf-monitor tells what is used of this machine's GPUs, and by whom: it samples the driver once per interval,
// joins the samples with the agent's grants, and serves the result to Prometheus and to streams.
//
// It only reads. It is a process of its own, so that what crashes in the driver's libraries costs metrics and never a
// grant: the agent neither starts it nor asks it anything.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/kerf-gpu/kerf/internal/process"
)

// version is set by the linker.
var version = "dev"

// garbage is how much may come together, in percent of what is in use, before it is collected: what is in use is some
// MiB.
const garbage = 400

// memory is from how many bytes on it is collected sooner: with the file of the program the whole stays below 80 MiB, also with many
// readers of samples.
const memory = 56 << 20

// processors is on how many processors at a time it works, unless GOMAXPROCS in its environment says otherwise. Its work is some
// hundredths of one; with more the runtime wakes threads for each reader and each answer of the driver, to look for work that
// another has done meanwhile. A call that hangs in the driver takes none.
const processors = 1

const (
	// slack is how much later than it asked to be a thread may be woken: little beside the shortest interval of samples.
	slack = time.Millisecond
	// relaxed, in the environment, says that this program has started itself again for that.
	relaxed = "KERF_MONITOR_RELAXED"
)

func main() {
	relax()
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(processors)
	}
	debug.SetGCPercent(garbage)
	debug.SetMemoryLimit(memory)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	hostname, err := os.Hostname()
	if err != nil {
		hostname = ""
	}
	env := environment{
		again:       func() error { return again() },
		libraryPath: os.Getenv("LD_LIBRARY_PATH"), dir: os.Getenv("KERF_DIR"), nodeName: os.Getenv("KERF_NODE_NAME"), hostname: hostname,
	}
	if err := command(env).ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "kerf-monitor:", err)
		os.Exit(1)
	}
}

// relax has the threads of this program woken together: it starts itself again for that, once. Without, it only costs more.
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

// again starts this very program again in its place, as it was started, with more in its environment; it returns only an error.
func again(more ...string) error {
	env := append(os.Environ(), more...)
	if path, err := os.Executable(); err == nil {
		_ = syscall.Exec(path, os.Args, env) //nolint:gosec // itself; it is called by its name
	}
	return syscall.Exec("/proc/self/exe", os.Args, env) //nolint:gosec // also where its file is gone
}
