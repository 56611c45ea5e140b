// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libtest_test

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/kerf-gpu/kerf/internal/libkerf"
)

// cannotInstall is package.sh's exit status on a machine where it cannot install packages.
const cannotInstall = 3

// requirePackage installs a Debian package without which a command fails, or skips the test where that is not possible.
func requirePackage(t *testing.T, name string, command ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "../../../../hack/package.sh",
		append([]string{name}, command...)...).CombinedOutput()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() == cannotInstall:
		t.Skipf("not supported: %s", out)
	case err != nil:
		t.Fatalf("%v\n%s", err, out)
	}
}

// compiles is a command that succeeds if a compiler can make a program with these flags.
func compiles(compiler string, flags ...string) []string {
	return append(append([]string{compiler}, flags...), "-x", "c", "-o", "/dev/null", "testdata/minimal.c")
}

// minimal compiles a program that prints "started".
func minimal(t *testing.T, compiler string, flags ...string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "minimal")
	args := append([]string{"-o", program, "testdata/minimal.c"}, flags...)
	if out, err := exec.CommandContext(t.Context(), compiler, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v\n%s", compiler, args, err, out)
	}
	return program
}

// A program that the library cannot count runs as it does alone, and its loader prints nothing.
func TestProgramsOfOtherLoaders(t *testing.T) {
	b := box{node: node{dir: t.TempDir()}, dir: built}
	for _, test := range []struct {
		name, pkg, compiler string
		flags               []string
	}{
		{"32-bit", "gcc-multilib", "gcc", []string{"-m32"}},
		{"musl", "musl-tools", "musl-gcc", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			requirePackage(t, test.pkg, compiles(test.compiler, test.flags...)...)
			program := minimal(t, test.compiler, test.flags...)
			if err := exec.CommandContext(t.Context(), program).Run(); errors.Is(err, syscall.ENOEXEC) {
				t.Skip("not supported: the kernel runs no such program, with or without the library")
			}
			code, out, errout := b.ended(t, nil, program)
			if code != 0 || out != "started 1" || errout != "" {
				t.Errorf("exit status %d, %q, %q", code, out, errout)
			}
		})
	}
}

// A sanitizer's runtime asks for symbols before it is ready, and accepts no library but itself as the first.
func TestProgramsOfSanitizers(t *testing.T) {
	n := start(t, "a30x2", "r580")
	for _, test := range []struct{ name, flags string }{
		{"address", "-fsanitize=address"},
		{"address-static", "-fsanitize=address -static-libasan"},
		{"thread", "-fsanitize=thread"},
		{"thread-static", "-fsanitize=thread -static-libtsan"},
		{"undefined", "-fsanitize=undefined"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			requirePackage(t, "gcc", compiles("gcc", strings.Fields(test.flags)...)...)
			out := t.TempDir()
			args := []string{"-s", "-C", "..", "OUT=" + out, "CFLAGS=-O0 -g " + test.flags, "SIM=" + built + "/r580",
				out + "/check/kerfcheck"}
			if text, err := exec.CommandContext(t.Context(), "make", args...).CombinedOutput(); err != nil {
				t.Fatalf("make %q: %v\n%s", args, err, text)
			}
			b := n.cap(t, gib)
			got := b.program(t, []string{"ASAN_OPTIONS=detect_leaks=0"}, filepath.Join(out, "check", "kerfcheck"),
				"gpu:0", "fill:linear:268435456", "info", "hammer:4:50:2097152", "state")
			if want := fmt.Sprintf("4|0 0 %d %d|", gib, gib); !strings.HasPrefix(got, want) {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}

// The loader of a program knows the processor by one of the names that lead to the library.
func TestPlatform(t *testing.T) {
	b := start(t, "a30x2", "r580").cap(t, gib)
	cmd, out, errout := b.command(t, nil, "/bin/cat", "/proc/self/maps")
	if err := cmd.Run(); err != nil || errout.Len() > 0 ||
		!strings.Contains(out.String(), filepath.Join(b.dir, libkerf.LibraryFile)) {
		t.Errorf("%v: the library is not loaded: %s%s", err, out, errout)
	}
}

// With LD_BIND_NOW the loader binds all of a program before it starts.
func TestProgramsBoundAtOnce(t *testing.T) {
	n := start(t, "a30x2", "r580")
	want := fmt.Sprintf("4|0 0 %d %d", gib, gib)
	for name, steps := range map[string][]string{
		"check/kerfcheck": {"gpu:0", "fill:linear:268435456", "info"},
		"check/linked":    {"gpu:0", "fill:linear:268435456", "info"},
		"with a library":  {"via:deep/lazy", "gpu:0", "fill:linear:268435456", "info"},
	} {
		program := name
		if !strings.HasPrefix(name, "check/") {
			program = "check/kerfcheck"
		}
		if got := n.cap(t, gib).program(t, []string{"LD_BIND_NOW=1"}, program, steps...); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
