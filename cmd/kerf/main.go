// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Command kerf runs programs on shares of GPUs and shows who uses what. On a machine it is a client of kerf-agent and
// needs only access to the agent's socket. In a cluster it is a client of the API server with the rights of its user.
// Under the name kubectl-kerf it is the kubectl command "kerf".
//
// Exit status: 0, 1 when the command could not do its work, 2 when it was used wrongly. The status of kerf run is that
// of the program that it runs. It is 125 when Kerf rejected or failed, 126 when the program cannot be executed, and 127
// when it is not found. A signal while kerf waits ends it as that signal does.
package main

import (
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // hours of profiles are by clocks of time zones, of which the images have no database

	"github.com/kerf-gpu/kerf/internal/cli"
	"github.com/kerf-gpu/kerf/internal/cli/command"
)

// version is set at link time.
var version = "dev"

// registry has the images of a release.
var registry string //nolint:gochecknoglobals // set at link time

func main() {
	code, stopped := command.Main(os.Args, command.Process{
		In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr, Getenv: os.Getenv, Environ: os.Environ, Exec: syscall.Exec,
		Version: version, Registry: registry,
	}, cli.Root)
	if stopped != 0 {
		dieOf(stopped)
	}
	os.Exit(code)
}

// dieOf ends the process as the signal does by default. So a shell that waits sees a signal and not a status, and stops
// its own loop. It returns when the signal is late; the status is then that of a shell.
func dieOf(s syscall.Signal) {
	signal.Reset(s)
	_ = syscall.Kill(syscall.Getpid(), s)
}
