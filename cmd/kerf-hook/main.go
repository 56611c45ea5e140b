// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Command kerf-hook lets a container's program run only once its cap is in force. The OCI runtime runs it as
// a createRuntime hook: as root, in the runtime's own namespaces, when the container's cgroup exists and its
// program does not run yet.
//
//	kerf-hook arm --socket PATH [--ask RESOURCE:COUNT] [--grant ID] [--wait DURATION] < OCI state
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

// The exit statuses beside 0. The runtime makes no difference; a person might.
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
