// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Command demo shows Kerf's main job on one machine: the real agent grants, arms, caps and gives back
// fractions of GPUs, through the real NVML door, to real processes.
//
// It uses this machine's NVIDIA driver when there is one, else a simulated node (h100x8 with driver r615). It
// checks what it shows against the driver's own word, ends with a line per thing shown, and exits non-zero
// when one of them did not hold. It ends everything that it started.
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
	real := flag.Bool("real", exists("/dev/nvidiactl"), "use this machine's driver instead of the simulated one")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ok, err := run(ctx, *bin, *real)
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

func run(ctx context.Context, bin string, real bool) (ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	abs, err := filepath.Abs(bin)
	if err != nil {
		return false, err
	}
	m, err := newMachine(ctx, abs, real)
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

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
