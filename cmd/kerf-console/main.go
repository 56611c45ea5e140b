// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Command kerf-console serves the web console in a cluster. It reads the cluster with the service account of its pod.
// Users log in with a token of the API server, and see what their rights include.
//
// Exit status: 0 after SIGTERM, 1 on an error, 2 if a flag is wrong.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // hours of profiles are by clocks of time zones, of which the images have no database
)

func main() {
	o, code := parse(os.Args[1:], os.Stderr)
	if code >= 0 {
		os.Exit(code)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	err := run(ctx, o, log)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "kerf-console: %v\n", err)
		os.Exit(1)
	}
}
