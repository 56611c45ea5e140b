// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Command kerf-agent is the node agent (see package sharing/node/agent).
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	_ "time/tzdata" // hours of profiles are by clocks of time zones, of which the images have no database
)

// version is set by the linker.
var version = "dev"

// callsAtOnce is the number of concurrent driver calls that leave a thread for other goroutines. A call into C counts
// against GOMAXPROCS until the Go runtime notices that it blocks. On two cores, two slow calls would delay the agent
// by up to 10 ms. Each container start makes two concurrent calls per GPU.
const callsAtOnce = 4

// garbage is how much the heap may grow, in percent of what lives, before it is swept. While pods start at once, a
// collection stands in the way of all of them; the living part is small.
const garbage = 200

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), callsAtOnce))
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbage)
	}
	env := environment{
		libraryPath: os.Getenv("LD_LIBRARY_PATH"),
		path:        os.Getenv("PATH"),
		devRoot:     os.Getenv("NVIDIA_DEV_ROOT"),
		config:      os.Getenv("KERF_CONFIG"),
		dir:         os.Getenv("KERF_DIR"),
		nodeName:    os.Getenv("KERF_NODE_NAME"),
		failpoints:  os.Getenv("KERF_FAILPOINTS"),
		pidSpace:    os.Getenv("KERF_TEST_PID_NAMESPACE"),
		again:       func() error { return syscall.Exec("/proc/self/exe", os.Args, os.Environ()) }, //nolint:gosec // this very program, as it was started
	}
	kill := func(string) {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // the signal ends us; nothing after a failpoint may run
	}
	if err := command(env, kill).ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "kerf-agent:", err)
		os.Exit(1)
	}
}
