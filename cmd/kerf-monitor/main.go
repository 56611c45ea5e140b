// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Command kerf-monitor reports the usage of this machine's GPUs and its owners. It samples the driver once per
// interval, joins the samples with the agent's grants, and serves the result to Prometheus and to streams.
//
// It only reads. It is a separate process, so a crash in the driver's libraries costs metrics and never a grant. The
// agent neither starts it nor calls it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
)

// version is set by the linker.
var version = "dev"

// garbage is how much may come together, in percent of what is in use, before it is collected: what is in use is some
// MiB.
const garbage = 400

// memory is the heap size from which garbage is collected sooner. With the file of the program the whole stays below 80
// MiB, also with many readers of samples.
const memory = 56 << 20

// processors is on how many processors at a time it works, unless GOMAXPROCS in its environment says otherwise. Its
// work is some hundredths of one. With more, the Go runtime wakes threads for each reader and each answer of the
// driver. They look for work that another has done meanwhile. A call that hangs in the driver takes none.
const processors = 1

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
		libraryPath: os.Getenv("LD_LIBRARY_PATH"), dir: os.Getenv("KERF_DIR"), nodeName: os.Getenv("KERF_NODE_NAME"),
		hostname: hostname,
	}
	if err := command(env).ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "kerf-monitor:", err)
		os.Exit(1)
	}
}
