// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/kerf-gpu/kerf/sim/mps"
)

// mpsProgram is what this executable is under one of NVIDIA's names; it returns the exit status.
func mpsProgram(ctx context.Context, name string, args []string) int {
	path, err := exec.LookPath(name)
	if errors.Is(err, exec.ErrNotFound) && os.Getenv("PATH") == "" { // of a caller that passes no PATH on
		path, err = filepath.Join("/usr/bin", name), nil
	}
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	w := mps.World{Program: path, Dev: mps.Dev(path), Env: os.Environ(), In: os.Stdin, Out: os.Stdout,
		Errout: os.Stderr}
	return w.Main(ctx, args)
}
