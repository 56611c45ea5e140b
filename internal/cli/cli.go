// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package cli is the command line of kerf: its commands, their flags and what they print. It reaches an agent through the
// node API and a cluster through the API server. It reads no environment and ends no process: cmd/kerf hands in the process.
package cli

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
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

// Main runs the command line argv, whose first word is the program's path. It returns the exit status of the process, and
// the signal that stopped the command, or 0. A caller that got a signal ends as that signal does by default.
func Main(argv []string, p Process) (code int, stopped syscall.Signal) {
	a := &app{
		plugin: filepath.Base(argv[0]) == pluginName,
		in:     p.In, out: p.Out, errOut: p.ErrOut, getenv: p.Getenv, environ: p.Environ,
		screen: screenOf(p.Out), errScreen: screenOf(p.ErrOut), exec: p.Exec,
	}
	code, err := a.main(argv[1:])
	if e, ok := errors.AsType[*interruptedError](err); ok {
		stopped = e.signal
	}
	return code, stopped
}
