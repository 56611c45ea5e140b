// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
)

// Process is what the command line uses of the process that it runs in.
type Process struct {
	In          *os.File
	Out, ErrOut *os.File
	// Getenv gives one variable of the environment, Environ all of them as "key=value".
	Getenv  func(string) string
	Environ func() []string
	// Exec replaces the process by a program; it returns only with an error.
	Exec func(path string, argv, env []string) error
}

// Main runs the command line argv, whose first word is the program's path, of the tree that root makes. It returns the exit
// status of the process, and the signal that stopped the command, or 0. A caller that got a signal ends as that signal does by default.
func Main(argv []string, p Process, root func(*App) *cobra.Command) (code int, stopped syscall.Signal) {
	a := &App{
		Plugin: filepath.Base(argv[0]) == pluginName,
		In:     p.In, Out: p.Out, ErrOut: p.ErrOut, Getenv: p.Getenv, Environ: p.Environ,
		Screen: screenOf(p.Out), ErrScreen: screenOf(p.ErrOut), Exec: p.Exec,
	}
	code, err := a.Run(root(a), argv[1:])
	if e, ok := errors.AsType[*InterruptedError](err); ok {
		stopped = e.signal
	}
	return code, stopped
}
