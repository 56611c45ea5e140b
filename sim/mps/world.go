// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

// The programs' names, by which one executable knows what it is.
const (
	ControlName = "nvidia-cuda-mps-control"
	ServerName  = "nvidia-cuda-mps-server"
)

const defaultPipe, defaultLog = "/tmp/nvidia-mps", "/var/log/nvidia-mps"

// World is what the programs get from outside.
type World struct {
	// Program is the absolute path by which this process was started; the server's program is in the same folder.
	Program string
	// Dev is the folder with the simulated GPUs' sockets.
	Dev string
	// Env is the environment, which servers inherit.
	Env         []string
	In          io.Reader
	Out, Errout io.Writer
}

// Main is both programs: which one, the name in World.Program says. It returns the exit status.
func (w World) Main(ctx context.Context, args []string) int {
	err := w.run(ctx, args)
	if err == nil {
		return 0
	}
	text := err.Error()
	if errors.Is(err, errNoDaemon) {
		text = "Cannot find MPS control daemon process"
	}
	_, _ = fmt.Fprintln(w.Errout, text) // the reader may be gone
	return 1
}

func (w World) run(ctx context.Context, args []string) error {
	if filepath.Base(w.Program) == ServerName {
		return w.serve(ctx)
	}
	switch strings.Join(args, " ") {
	case "":
		return w.ask(ctx)
	case "-d":
		return w.daemonize(ctx)
	case "-f":
		return w.control(ctx)
	}
	return sharing.Invalid("argument", strings.Join(args, " "), "write -d, -f or none", "is not known")
}

// Dev returns the folder of GPUs' sockets for a program at an absolute path: DIR/dev for DIR/bin/program if that
// is a simulated node's, that of a tree of gpusim root, else /dev.
func Dev(program string) string {
	for _, dev := range []string{filepath.Join(filepath.Dir(filepath.Dir(program)), "dev"), "/run/gpusim/dev"} {
		if _, err := os.Stat(filepath.Join(dev, "nvidiactl")); err == nil {
			return dev
		}
	}
	return "/dev"
}

// lookup reads a variable.
func (w World) lookup(name string) (string, bool) {
	for _, e := range slices.Backward(w.Env) {
		if k, v, _ := strings.Cut(e, "="); k == name {
			return v, true
		}
	}
	return "", false
}

func (w World) pipe() string { return w.dir("CUDA_MPS_PIPE_DIRECTORY", defaultPipe) }
func (w World) logs() string { return w.dir("CUDA_MPS_LOG_DIRECTORY", defaultLog) }

func (w World) dir(name, otherwise string) string {
	if v, ok := w.lookup(name); ok && v != "" {
		return v
	}
	return otherwise
}
