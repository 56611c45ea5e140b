// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Command kerf-hook delays a container's program until the kernel or the backend enforces its cap. The OCI runtime
// runs it as a createRuntime hook, as root. At that time the container's cgroup exists and its program does not run
// yet.
//
//	kerf-hook activate --socket PATH [--request RESOURCE:COUNT] [--grant ID] [--wait DURATION] < OCI state
//	kerf-hook version
//
// Package hooks/oci/client asks the agent. Exit 0 lets the program run, anything else stops the container, with one
// line on stderr that the runtime shows.
//
// It trusts its arguments, which root wrote, and the id, status and pid of the state. It reads no environment
// variable, no annotation and no file, opens nothing but the socket, and starts no process. It is linked
// statically of the standard library, the client and its messages alone.
//
// What Go's runtime reads at its start (/proc/self, /sys) is the host's, since the hook runs there.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/kerf-gpu/kerf/hooks/oci/client"
)

// version is set when the program is built.
var version = "devel"

// These are the exit statuses other than 0. The OCI runtime treats all alike; they help people who debug.
const (
	exitRefused = 1
	exitUsage   = 2
)

func main() {
	os.Exit(run(os.Args))
}

func run(args []string) int {
	if len(args) == 2 && args[1] == "version" {
		fmt.Println(version)
		return 0
	}
	o, err := parse(args)
	if err == nil {
		err = client.Activate(context.Background(), version, o, os.Stdin)
	}
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "kerf-hook: "+client.OneLine(err.Error()))
	if errors.Is(err, errUsage) {
		return exitUsage
	}
	return exitRefused
}
