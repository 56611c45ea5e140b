// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Command kubectl-kerf is the kubectl command "kerf" for Linux, macOS and Windows: kerf without the commands for one
// machine. It is a client of the API server with the rights of its user.
//
// Exit status: 0, 1 when the command could not do its work, 2 when it was used wrongly. run has that of the program
// that it runs, and 125 when Kerf refused or failed. After a signal, the status is 128 and the signal's number.
package main

import (
	"errors"
	"os"
	_ "time/tzdata" // hours of profiles are by clocks of time zones, which not every system has

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/cli/kubectl"
)

// version is set at link time.
var version = "dev"

// registry has the images of a release.
var registry string //nolint:gochecknoglobals // set at link time

func main() {
	code, stopped := command.Main(os.Args, command.Process{
		In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr, Getenv: os.Getenv, Environ: os.Environ,
		Exec:    func(string, []string, []string) error { return errors.ErrUnsupported },
		Version: version, Registry: registry,
	}, kubectl.Root)
	if stopped != 0 {
		code = 128 + int(stopped)
	}
	os.Exit(code)
}
