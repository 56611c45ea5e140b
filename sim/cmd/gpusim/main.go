// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Command gpusim simulates a node with NVIDIA GPUs in a directory: a driver in miniature, whose libraries
// programs load as they load the real ones. What it cannot show is the timing of real GPUs and what runs on
// them.
//
// Under the names nvidia-cuda-mps-control and nvidia-cuda-mps-server it stands in for those programs, and under
// nvidia-smi-compute-policy for the part of nvidia-smi that sets time slices. A simulated node has them in its bin.
//
// Exit status: 0, 1 when the command could not do its work, 2 when it was used wrongly.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/mps"
	"github.com/kerf-gpu/kerf/sim/smi"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	name := filepath.Base(os.Args[0])
	var err error
	switch name {
	case mps.ControlName, mps.ServerName:
		status := mpsProgram(ctx, os.Args[0], os.Args[1:])
		stop()
		os.Exit(status)
	case smi.PolicyName:
		err = runSMI(ctx, os.Args[0], os.Args[1:])
	default:
		name = "gpusim"
		err = rootCommand().ExecuteContext(ctx)
	}
	stop()
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, name+":", err)
	if errors.Is(err, sharing.ErrInvalid) {
		os.Exit(2)
	}
	os.Exit(1)
}
