// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/nodeclient/fakenode"
	"github.com/kerf-gpu/kerf/internal/present"
	"github.com/kerf-gpu/kerf/test/clitest"
)

func TestStatusForms(t *testing.T) {
	dir := t.TempDir()
	(&fakenode.Server{}).Start(t, dir).Show(clitest.Node(true, "train"))
	for name, want := range map[string]string{
		"": "GRANT  STATE", "table": "GRANT  STATE", "wide": "CGROUP", "bars": "▕", "json": `"usedBytes": null`,
		"yaml": "usedBytes: null",
	} {
		args := []string{"--run-dir", dir, "status"}
		if name != "" {
			args = append(args, "-o", name)
		}
		p := clitest.New(nil)
		if code, err := p.App.Execute(args, Commands); code != 0 || !strings.Contains(p.Out.String(), want) ||
			strings.Contains(p.Out.String(), "\x1b") {
			t.Errorf("-o %q: %d, %v, no %q in:\n%s", name, code, err, want, p.Out.String())
		}
	}
	p := clitest.New(nil)
	p.App.Execute([]string{"--run-dir", dir, "status", "-o", "json"}, Commands) //nolint:errcheck // its output is read
	var s present.Status
	if err := json.Unmarshal(p.Out.Bytes(), &s); err != nil || !s.Ready || s.Grants[0].Name != "train" {
		t.Errorf("json: %v, %+v", err, s)
	}
}

// On a terminal: bars, colours unless NO_COLOR is set, and no line wider than it.
func TestStatusOnATerminal(t *testing.T) {
	dir := t.TempDir()
	(&fakenode.Server{}).Start(t, dir).Show(clitest.Node(true, "train"))
	for noColor, colored := range map[string]bool{"": true, "1": false} {
		p := clitest.New(map[string]string{"NO_COLOR": noColor, "TERM": "xterm"})
		p.App.Screen = func() (int, int, bool) { return 60, 20, true }
		code, err := p.App.Execute([]string{"--run-dir", dir, "status"}, Commands)
		if out := p.Out.String(); code != 0 || !strings.Contains(out, "▕") ||
			strings.Contains(out, "\x1b[") != colored {
			t.Errorf("NO_COLOR=%q: %d, %v, %q", noColor, code, err, out)
		}
	}
}

func TestDirFromTheEnvironment(t *testing.T) {
	dir := t.TempDir()
	(&fakenode.Server{}).Start(t, dir).Show(clitest.Node(true))
	p := clitest.New(map[string]string{"KERF_DIR": dir})
	if code, err := p.App.Execute([]string{"status"}, Commands); code != 0 {
		t.Error(code, err)
	}
}

// The wait begins before there is an agent, and goes on over its restart.
func TestStatusWait(t *testing.T) {
	dir := t.TempDir()
	type answer struct {
		code int
		err  string
	}
	wait := func(condition, timeout string) chan answer {
		got := make(chan answer, 1)
		go func() {
			p := clitest.New(nil)
			code, _ := p.App.Execute([]string{"--run-dir", dir, "status", "--wait", condition, "--timeout", timeout},
				Commands)
			got <- answer{code, p.ErrOut.String()}
		}()
		return got
	}
	ready, none := wait("ready", "1m"), wait("grants=0", "1m")
	s := (&fakenode.Server{}).Start(t, dir)
	s.Show(clitest.Node(false, "a", "b"))
	if a := <-wait("grants=2", "1m"); a.code != 0 {
		t.Errorf("grants=2: %+v", a)
	}
	// Long enough for the picture to come, whatever else this machine does.
	never, nor := wait("grants=1", "5s"), wait("ready", "5s")
	if a := <-never; a.code != 1 || !strings.Contains(a.err, "last seen: grants=2 (a, b)") {
		t.Errorf("grants=1: %+v", a)
	}
	if a := <-nor; a.code != 1 || !strings.Contains(a.err, "last seen: not ready: no driver") {
		t.Errorf("ready: %+v", a)
	}
	s.Kill()
	(&fakenode.Server{}).Start(t, dir).Show(clitest.Node(true))
	if a := <-ready; a.code != 0 {
		t.Errorf("ready: %+v", a)
	}
	if a := <-none; a.code != 0 {
		t.Errorf("grants=0: %+v", a)
	}
}

func TestStatusWaitPrintsThePictureThatHolds(t *testing.T) {
	dir := t.TempDir()
	(&fakenode.Server{}).Start(t, dir).Show(clitest.Node(true, "a"))
	p := clitest.New(nil)
	if code, _ := p.App.Execute([]string{"--run-dir", dir, "status", "--wait", "grants=1", "-o", "json"},
		Commands); code != 0 || !json.Valid(p.Out.Bytes()) {
		t.Errorf("%d, %q", code, p.Out.String())
	}
}

// A watch redraws in place, says when the agent is away, goes on with the next one, and gives the terminal
// back on ctrl-C.
func TestStatusWatchOnATerminal(t *testing.T) {
	dir := t.TempDir()
	s := (&fakenode.Server{}).Start(t, dir)
	s.Show(clitest.Node(true, "first"))
	term := clitest.OpenTerminal(t, 90, 12)
	before, err := unix.IoctlGetTermios(int(term.Slave.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	c := term.Start(t, "--run-dir", dir, "status", "--watch")
	at := term.Await(t, 0, command.EnterScreen)
	at = term.Await(t, at, "first")
	s.Show(clitest.Node(true, "second"))
	at = term.Await(t, at, "second")
	s.Kill()
	at = term.Await(t, at, "agent away")
	(&fakenode.Server{}).Start(t, dir).Show(clitest.Node(true, "third"))
	at = term.Await(t, at, "third")
	if _, err := term.Master.Write([]byte{3}); err != nil { // ctrl-C
		t.Fatal(err)
	}
	term.Await(t, at, command.LeaveScreen)
	if err := c.Wait(); err != nil {
		t.Errorf("ended with %v, want 0", err)
	}
	after, err := unix.IoctlGetTermios(int(term.Slave.Fd()), unix.TCGETS)
	if err != nil || *after != *before {
		t.Errorf("the terminal's settings changed: %v", err)
	}
}

// A stream is one document per line, and ends with 0 on a signal.
func TestStatusWatchAsStream(t *testing.T) {
	dir := t.TempDir()
	(&fakenode.Server{}).Start(t, dir).Show(clitest.Node(true, "first"))
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	c := exec.CommandContext(t.Context(), os.Args[0], "--run-dir", dir, "status", "--watch", "-o", "json")
	c.Env, c.Stdout = append(os.Environ(), clitest.AsKerf+"=1"), out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		b, err := os.ReadFile(out.Name())
		if err != nil {
			t.Fatal(err)
		}
		if i := strings.IndexByte(string(b), '\n'); i >= 0 {
			if !json.Valid(b[:i]) {
				t.Errorf("first line %q", b[:i])
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("nothing came")
		}
	}
	_ = c.Process.Signal(syscall.SIGTERM)
	if err := c.Wait(); err != nil {
		t.Errorf("ended with %v, want 0", err)
	}
}
