// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/hooks/oci/wire"
)

// build makes the program as the Makefile makes it.
func build(t *testing.T) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "kerf-hook")
	cmd := exec.CommandContext(t.Context(), "make", "-C", "../..", "kerf-hook", "HOOK_OUT="+out, "VERSION=v7.8.9")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return out
}

func TestProgramIsStaticAndStartsNoProcess(t *testing.T) {
	f, err := elf.Open(build(t))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("the program has a segment %s: it is not linked statically", p.Type)
		}
	}
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err) // without symbols this test could not fail
	}
	if !slices.ContainsFunc(symbols, func(s elf.Symbol) bool { return s.Name == "main.main" }) {
		t.Error("no symbol main.main: this test looks at nothing")
	}
	starts := regexp.MustCompile(
		`^(syscall\.(forkExec|forkAndExecInChild1?|ForkExec|StartProcess|Exec|runtime_BeforeFork)|os\.(StartProcess|startProcess)|os/exec\..*|plugin\..*|x_cgo_.*)$`)
	for _, s := range symbols {
		if starts.MatchString(s.Name) {
			t.Errorf("the program has %s: it can start a process or load code", s.Name)
		}
	}
}

// allowed is the standard library that the program is made of, without its internal packages. What is not
// needed for frames, flags and a unix socket does not belong here.
var allowed = strings.Fields(`
	bytes cmp context encoding encoding/base64 encoding/binary encoding/json errors flag fmt io io/fs iter math math/bits
	net net/netip os path reflect runtime slices strconv strings sync sync/atomic syscall time unicode unicode/utf16
	unicode/utf8 unique unsafe weak`)

// own are the packages of this module that the program is made of.
var own = []string{"github.com/kerf-gpu/kerf/cmd/kerf-hook", "github.com/kerf-gpu/kerf/hooks/oci/client",
	"github.com/kerf-gpu/kerf/hooks/oci/wire"}

func TestDependencies(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{.ImportPath}} {{.Standard}}", ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for line := range strings.Lines(string(out)) {
		path, standard, _ := strings.Cut(strings.TrimSpace(line), " ")
		first, _, _ := strings.Cut(path, "/")
		switch {
		case slices.Contains(own, path):
			seen++
		case standard != "true":
			t.Errorf("%s: the program may use the standard library, its client and its messages alone", path)
		case first == "internal", first == "vendor", strings.Contains(path, "/internal/"):
		case !slices.Contains(allowed, path):
			t.Errorf("%s is not among the packages that the program is made of", path)
		}
	}
	if seen != len(own) {
		t.Errorf("%d packages of this module, want %q", seen, own)
	}
}

func TestVersion(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), build(t), "version").Output()
	if err != nil || string(out) != "v7.8.9\n" {
		t.Errorf("%q (%v), want the version that make was given", out, err)
	}
}

// TestProgram runs the program itself, with an environment that would change others.
func TestProgram(t *testing.T) {
	bin := build(t)
	socket := agent(t, wire.Response{OK: true},
		wire.Response{Message: "not enough free\nkerf-hook: all is well\x1b[2J"})
	run := func(stdin io.Reader, args ...string) (code int, stdout, stderr string) {
		var o, e bytes.Buffer
		cmd := exec.CommandContext(t.Context(), bin, args...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &o, &e
		cmd.Env = []string{"LD_PRELOAD=/nonexistent/poc.so", "KERF_SOCKET=/nonexistent", "NVIDIA_VISIBLE_DEVICES=all"}
		err := cmd.Run()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), o.String(), e.String()
	}
	if code, out, errs := run(strings.NewReader(creating), "activate", "--socket", socket, "--request",
		"gpu:1"); code != 0 ||
		out+errs != "" {
		t.Errorf("exit %d, stdout %q, stderr %q, want silence", code, out, errs)
	}
	code, out, errs := run(strings.NewReader(creating), "activate", "--socket", socket)
	if code != exitRefused || out != "" || strings.Count(errs, "\n") != 1 || !strings.HasSuffix(errs, "\n") ||
		strings.Contains(errs, "\x1b") || !strings.Contains(errs, "not enough free") {
		t.Errorf("refused: exit %d, stdout %q, stderr %q, want 1 and one line", code, out, errs)
	}
	if code, _, errs := run(strings.NewReader("{}"), "activate", "--socket", socket); code != exitRefused ||
		strings.Count(errs, "\n") != 1 {
		t.Errorf("bad state: exit %d, stderr %q, want 1 and one line", code, errs)
	}
	if code, _, errs := run(strings.NewReader(creating), "disarm"); code != exitUsage ||
		!strings.Contains(errs, "usage") {
		t.Errorf("bad arguments: exit %d, stderr %q, want 2 and the usage", code, errs)
	}
	// The hook must not block on a stdin that stays open.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if code, _, errs := run(r, "activate", "--socket", socket, "--wait", "50ms"); code != exitRefused ||
		!strings.Contains(errs, "stdin") {
		t.Errorf("open stdin: exit %d, stderr %q, want 1 and the reason", code, errs)
	}
}
