// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Command demo shows Kerf's main job on one machine. The real agent grants, activates, caps and releases shares of
// GPUs, through the real NVML adapter, to real processes.
//
// It uses this machine's NVIDIA driver, or a simulated node (h100x8) with a driver of the release that -driver names.
// It checks what it shows against the driver's report, and ends with a line per check. It exits non-zero when one of
// them failed, or when a share is not enforced. It ends everything that it started.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// patience bounds the whole demo; a healthy one takes some ten seconds.
const patience = 5 * time.Minute

func main() {
	bin := flag.String("bin", "bin", "directory of the programs")
	driver := flag.String("driver", "r615",
		"release of the simulated driver: r550, r580 or r615; empty: use this machine's driver")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ok, err := run(ctx, *bin, *driver)
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

func run(ctx context.Context, bin, driver string) (ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	abs, err := filepath.Abs(bin)
	if err != nil {
		return false, err
	}
	m, err := newMachine(ctx, abs, driver)
	if err != nil {
		return false, err
	}
	defer m.close()
	s := &show{machine: m}
	if err := s.play(ctx); err != nil {
		m.tail()
		return false, err
	}
	return s.sum(), nil
}
