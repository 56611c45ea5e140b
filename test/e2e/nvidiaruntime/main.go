// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Command nvidia-container-runtime is a stand-in for NVIDIA's: at `create --bundle DIR` it gives the container
// the GPUs that the environment of its process names in NVIDIA_VISIBLE_DEVICES, and then becomes runc.
//
// It obeys that variable whether an image or a pod set it, as NVIDIA's runtime does in its default configuration. That
// is its purpose: the tests show with it what Kerf must not allow, and the agent's own pod gets its view of the GPUs by
// it.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"tags.cncf.io/container-device-interface/pkg/cdi"
)

func main() {
	if err := run(os.Args); err != nil {
		fmt.Fprintln(os.Stderr, "nvidia-container-runtime:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if bundle, ok := createdBundle(args[1:]); ok {
		cache, err := cdi.NewCache(cdi.WithSpecDirs("/etc/cdi", "/var/run/cdi"), cdi.WithAutoRefresh(false))
		if err != nil {
			return fmt.Errorf("read CDI specs: %w", err)
		}
		if err := editBundle(cache, bundle); err != nil {
			return err
		}
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	runc := filepath.Join(filepath.Dir(exe), "runc")
	args[0] = runc
	return errors.Join(fmt.Errorf("become %s", runc), syscall.Exec(runc, args, os.Environ()))
}

// createdBundle finds the bundle in `[global flags] create [flags] ID`; false for other commands.
func createdBundle(args []string) (string, bool) {
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		if takesValue(args[0]) && len(args) > 1 {
			args = args[1:]
		}
		args = args[1:]
	}
	if len(args) == 0 || args[0] != "create" {
		return "", false
	}
	for i, arg := range args {
		if value, ok := strings.CutPrefix(arg, "--bundle="); ok {
			return value, true
		}
		if (arg == "--bundle" || arg == "-b") && i+1 < len(args) {
			return args[i+1], true
		}
	}
	return ".", true
}

// takesValue tells runc's global flags whose value is the next word.
func takesValue(flag string) bool {
	switch flag {
	case "--root", "--log", "--log-format", "--criu", "--rootless":
		return true
	}
	return false
}
