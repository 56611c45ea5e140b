// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package simlib gives tests the libraries of the simulated driver.
package simlib

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Build returns the absolute path of a folder with a folder of libraries for each driver: r550, r580 and r615. "make
// build" uses the same folder, and Build brings it up to date. Tests of several packages may call Build at once. They
// change nothing in the folder.
func Build(t *testing.T) string {
	t.Helper()
	root, err := repository(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(root, "bin", "gpusim-lib")
	if err := os.MkdirAll(out, 0o755); err != nil {
		t.Fatal(err)
	}
	// make does not expect another make in the same folder.
	fd, err := unix.Open(out, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("open %s: %v", out, err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Flock(fd, unix.LOCK_EX); err != nil {
		t.Fatalf("lock %s: %v", out, err)
	}
	build := exec.CommandContext(t.Context(), "make", "-s", "-C", filepath.Join(root, "sim", "lib"), "OUT="+out)
	if msg, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the simulated driver's libraries: %v\n%s", err, msg)
	}
	return out
}

// repository is the folder of go.mod.
func repository(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find go.mod: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
}
