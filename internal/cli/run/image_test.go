// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"bufio"
	"bytes"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/containerd/runner"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/test/clitest"
)

func TestParseVolume(t *testing.T) {
	for v, want := range map[string]runner.Mount{
		"/a:/b":          {Source: "/a", Target: "/b"},
		"/a/:/b/../c:ro": {Source: "/a", Target: "/c", ReadOnly: true},
		"/:/b:rw":        {Source: "/", Target: "/b"},
		"":               {}, "/a": {}, "/a:": {}, ":/b": {}, "a:/b": {}, "/a:b": {}, "/a:/": {}, "/a:/b:x": {},
		"/a:/b:ro:z": {}, "/a\x00:/b": {},
	} {
		got, err := parseVolume(v)
		if got != want || (err != nil) != (want.Target == "") || err != nil && !errors.Is(err, sharing.ErrInvalid) {
			t.Errorf("parseVolume(%q) = %+v, %v; want %+v", v, got, err, want)
		}
	}
}

func TestStartFailure(t *testing.T) {
	const runc = "failed to create shim task: OCI runtime create failed: runc create failed: unable to start " +
		"container process: "
	for text, want := range map[string]int{
		runc +
			`error during container init: exec: "nosuch": executable file not found in $PATH`: exitNotFound,
		runc +
			`error during container init: exec /bin/x: no such file or directory`: exitNotFound,
		runc +
			`error during container init: exec: "/etc": is a directory`: exitNotExec,
		runc +
			`error during container init: exec: "/etc/passwd": permission denied`: exitNotExec,
		runc + `exec /x: exec format error`: exitNotExec,
		runc +
			`error running createRuntime hook #0: exit status 1, stdout: , stderr: exec: "x": executable file not found in $PATH`: exitRefused,
		"create container: permission denied":  exitRefused,
		"no such file or directory: /run/runc": exitRefused,
	} {
		err := startFailure([]string{"cmd"}, errors.New(text))
		code := exitRefused
		if f, ok := errors.AsType[*command.Failure](err); ok {
			code = f.Code
		}
		if code != want || want == exitRefused && err.Error() != text || want != exitRefused &&
			!strings.HasPrefix(err.Error(), `"cmd": `) {
			t.Errorf("%q: %d, %v; want %d", text, code, err, want)
		}
	}
}

// fatal is what the kernel would do to a program that is not the first of its pid namespace.
func TestFatal(t *testing.T) {
	start := func(script string) int {
		c := exec.CommandContext(t.Context(), "sh", "-c", script)
		in, err := c.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = in.Close(); _ = c.Wait() })
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		return c.Process.Pid
	}
	plain, traps := start("echo ready; read x"), start(`trap "echo got" TERM; trap "" HUP; echo ready; read x`)
	for _, tt := range []struct {
		pid    int
		signal syscall.Signal
		want   bool
	}{
		{plain, syscall.SIGTERM, true}, {plain, syscall.SIGUSR1, true},
		{traps, syscall.SIGTERM, false}, {traps, syscall.SIGHUP, false}, {traps, syscall.SIGUSR2, true},
		{1 << 30, syscall.SIGTERM, false},
	} {
		if got := fatal(tt.pid, tt.signal); got != tt.want {
			t.Errorf("process %d (plain %t), %v: %t", tt.pid, tt.pid == plain, tt.signal, got)
		}
	}
}

// No terminal is no terminal: every step goes on without.
func TestNoConsole(t *testing.T) {
	c := openConsole(strings.NewReader(""), &bytes.Buffer{})
	if c != nil {
		t.Fatal("a terminal in memory")
	}
	c.follow(nil)
	if err := errors.Join(c.raw(), c.restore()); err != nil {
		t.Error(err)
	}
	var f *forwarder
	f.stop()
}

// Nothing is reserved before it is known that there is an image to run.
func TestImageRefusals(t *testing.T) {
	s, dir := containerNode(t, nil)
	gone := filepath.Join(t.TempDir(), "c.sock")
	for name, tt := range map[string]struct {
		args []string
		text string
	}{
		"flags without image": {[]string{"--pull", "never", "-e", "A=b", "-v", "/a:/b", "--workdir", "/",
			"--containerd-socket", gone, "--", "true"}, "--volume is for containers alone"},
		"bad flags": {[]string{"--image", "A", "--pull", "x", "-e", "=", "-v", "x", "--workdir", "x", "--", "true"},
			"--workdir"},
		"empty image":   {[]string{"--image", "", "--", "true"}, "--image is empty"},
		"no containerd": {[]string{"--image", "busybox", "--containerd-socket", gone}, ""},
	} {
		status := filepath.Join(t.TempDir(), "status.json")
		p := clitest.New(nil)
		code, err := p.App.Execute(append([]string{"--run-dir", dir, "run", "--memory", "1GiB", "--status-file",
			status},
			tt.args...), Commands)
		if code != exitRefused || err == nil || !strings.Contains(p.ErrOut.String(), tt.text) {
			t.Errorf("%s: %d, %q", name, code, p.ErrOut.String())
		}
	}
	if slices.Contains(s.Calls(), "Reserve") {
		t.Errorf("calls %v", s.Calls())
	}
}
