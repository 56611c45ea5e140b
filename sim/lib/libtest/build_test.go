// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libtest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// built is where TestMain's make put libraries and programs. builtVar names it to a test that runs in another process.
// sanitizeVar has the compiler's flags for a sanitizer.
var built string

const (
	builtVar    = "GPUSIM_TEST_BUILT"
	sanitizeVar = "KERF_TEST_SANITIZE"
)

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if built = os.Getenv(builtVar); built != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "gpusim-lib")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	built = dir
	// The checks of the Makefile themselves (names, SONAMEs, hardening) are part of the test.
	args := []string{"-C", "..", "-j2", "OUT=" + dir, "SANITIZE=" + os.Getenv(sanitizeVar), "check"}
	out, err := exec.Command("make", args...).CombinedOutput()
	if err != nil {
		fmt.Fprintf(os.Stderr, "build the libraries: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// result is what a program left behind.
type result struct {
	code        int
	out, errout string
}

// program runs one of the built programs against the driver in dir until it ends.
func program(t *testing.T, dir string, env []string, name string, args ...string) result {
	t.Helper()
	cmd, out, errout := command(t, dir, env, name, args...)
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("run %s: %v", name, err)
	}
	return result{cmd.ProcessState.ExitCode(), strings.TrimSpace(out.String()), errout.String()}
}

func command(t *testing.T, dir string, env []string, name string, args ...string) (cmd *exec.Cmd, out,
	errout *bytes.Buffer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	out, errout = &bytes.Buffer{}, &bytes.Buffer{}
	cmd = exec.CommandContext(ctx, filepath.Join(built, name), args...)
	cmd.Env = append([]string{"LD_LIBRARY_PATH=" + filepath.Join(dir, "lib")}, env...)
	if options := os.Getenv("ASAN_OPTIONS"); options != "" && !slices.ContainsFunc(env, isASANOptions) {
		cmd.Env = append(cmd.Env, "ASAN_OPTIONS="+options)
	}
	cmd.Stdout, cmd.Stderr = out, errout
	return cmd, out, errout
}

// nvml runs nvmlcheck, which must end well, and returns its lines.
func nvml(t *testing.T, dir string, commands ...string) []string {
	t.Helper()
	r := program(t, dir, nil, "check/nvmlcheck", commands...)
	if r.code != 0 {
		t.Fatalf("nvmlcheck %q: exit %d\n%s%s", commands, r.code, r.out, r.errout)
	}
	return strings.Split(r.out, "\n")
}

func isASANOptions(v string) bool { return strings.HasPrefix(v, "ASAN_OPTIONS=") }
