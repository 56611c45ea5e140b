// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cli

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

	nodev1 "github.com/kerf-gpu/kerf/api/node/v1"
	"github.com/kerf-gpu/kerf/internal/nodeclient/fakenode"
	"github.com/kerf-gpu/kerf/internal/present"
)

func picture(ready bool, names ...string) *nodev1.GetNodeResponse {
	p := &nodev1.GetNodeResponse{
		Ready: ready, DriverVersion: "615.71.09",
		Gpus: []*nodev1.GPU{{Uuid: "GPU-a", Model: "NVIDIA H100", MemoryBytes: 80 << 30, Health: "healthy", Levels: []string{"driver"}}},
	}
	if !ready {
		p.NotReady = []string{"no driver"}
	}
	for _, n := range names {
		p.Grants = append(p.Grants, &nodev1.Grant{Id: "id-" + n, Name: n, Level: "driver", Fragments: []*nodev1.Fragment{{Gpu: "GPU-a", MemoryBytes: 1 << 30}}})
	}
	return p
}

func TestStatusForms(t *testing.T) {
	dir := t.TempDir()
	(&fakenode.Server{}).Start(t, dir).Show(picture(true, "train"))
	for name, want := range map[string]string{
		"": "GRANT  STATE", "table": "GRANT  STATE", "wide": "CGROUP", "bars": "▕", "json": `"used_bytes": null`, "yaml": "used_bytes: null",
	} {
		args := []string{"--dir", dir, "status"}
		if name != "" {
			args = append(args, "-o", name)
		}
		p := newInProcess(nil)
		if code, err := p.app.main(args); code != 0 || !strings.Contains(p.out.String(), want) || strings.Contains(p.out.String(), "\x1b") {
			t.Errorf("-o %q: %d, %v, no %q in:\n%s", name, code, err, want, p.out.String())
		}
	}
	p := newInProcess(nil)
	p.app.main([]string{"--dir", dir, "status", "-o", "json"}) //nolint:errcheck // its output is read
	var s present.Status
	if err := json.Unmarshal(p.out.Bytes(), &s); err != nil || !s.Ready || s.Grants[0].Name != "train" {
		t.Errorf("json: %v, %+v", err, s)
	}
}

// On a terminal: bars, colours unless NO_COLOR is set, and no line wider than it.
func TestStatusOnATerminal(t *testing.T) {
	dir := t.TempDir()
	(&fakenode.Server{}).Start(t, dir).Show(picture(true, "train"))
	for noColor, colored := range map[string]bool{"": true, "1": false} {
		p := newInProcess(map[string]string{"NO_COLOR": noColor, "TERM": "xterm"})
		p.app.screen = func() (int, int, bool) { return 60, 20, true }
		code, err := p.app.main([]string{"--dir", dir, "status"})
		if out := p.out.String(); code != 0 || !strings.Contains(out, "▕") || strings.Contains(out, "\x1b[") != colored {
			t.Errorf("NO_COLOR=%q: %d, %v, %q", noColor, code, err, out)
		}
	}
}

// Wrong usage is 2, names the flag and what is allowed; an agent that is not there is 1.
func TestUsage(t *testing.T) {
	dir := t.TempDir()
	for line, want := range map[string]struct {
		code int
		text string
	}{
		"status -o xml":                             {2, `--output "xml"`},
		"status --wait soon":                        {2, "write ready, or grants=N"},
		"status --wait=":                            {2, "write ready, or grants=N"},
		"status --wait grants=":                     {2, "write ready, or grants=N"},
		"status --wait grants=-1":                   {2, "negative"},
		"status --wait grants=1.5":                  {2, "whole number"},
		"status --wait grants=99999999999999999999": {2, "too many"},
		"status --wait ready --timeout 0s":          {2, "--timeout"},
		"status --wait ready --timeout -1s":         {2, "--timeout"},
		"status --wait ready --timeout soon":        {2, "--timeout"},
		"status --timeout 5s":                       {2, "--wait CONDITION"},
		"status --watch --wait ready":               {2, "--watch"},
		"status extra":                              {2, "extra"},
		"status --bogus":                            {2, "--bogus"},
		"frobnicate":                                {2, "frobnicate"},
		"metrics extra":                             {2, "extra"},
		"doctor -o xml":                             {2, `--output "xml"`},
		"version extra":                             {2, "extra"},
		"status":                                    {1, "no kerf-agent at"},
		"metrics":                                   {1, "no kerf-agent at"},
		"status --wait ready --timeout 300ms":       {1, "last seen: no kerf-agent at"},
		"version":                                   {0, ""},
		"completion bash":                           {0, ""},
		"help":                                      {0, ""},
	} {
		t.Run(line, func(t *testing.T) {
			p := newInProcess(nil)
			code, _ := p.app.main(append([]string{"--dir", dir}, strings.Fields(line)...))
			if code != want.code || !strings.Contains(p.errOut.String(), want.text) {
				t.Errorf("got %d, %q; want %d, %q", code, p.errOut.String(), want.code, want.text)
			}
		})
	}
}

func TestDirFromTheEnvironment(t *testing.T) {
	dir := t.TempDir()
	(&fakenode.Server{}).Start(t, dir).Show(picture(true))
	p := newInProcess(map[string]string{"KERF_DIR": dir})
	if code, err := p.app.main([]string{"status"}); code != 0 {
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
			p := newInProcess(nil)
			code, _ := p.app.main([]string{"--dir", dir, "status", "--wait", condition, "--timeout", timeout})
			got <- answer{code, p.errOut.String()}
		}()
		return got
	}
	ready, none := wait("ready", "1m"), wait("grants=0", "1m")
	s := (&fakenode.Server{}).Start(t, dir)
	s.Show(picture(false, "a", "b"))
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
	(&fakenode.Server{}).Start(t, dir).Show(picture(true))
	if a := <-ready; a.code != 0 {
		t.Errorf("ready: %+v", a)
	}
	if a := <-none; a.code != 0 {
		t.Errorf("grants=0: %+v", a)
	}
}

func TestStatusWaitPrintsThePictureThatHolds(t *testing.T) {
	dir := t.TempDir()
	(&fakenode.Server{}).Start(t, dir).Show(picture(true, "a"))
	p := newInProcess(nil)
	if code, _ := p.app.main([]string{"--dir", dir, "status", "--wait", "grants=1", "-o", "json"}); code != 0 || !json.Valid(p.out.Bytes()) {
		t.Errorf("%d, %q", code, p.out.String())
	}
}

// A watch redraws in place, says when the agent is away, goes on with the next one, and gives the terminal
// back on ctrl-C.
func TestStatusWatchOnATerminal(t *testing.T) {
	dir := t.TempDir()
	s := (&fakenode.Server{}).Start(t, dir)
	s.Show(picture(true, "first"))
	term := openTerminal(t, 90, 12)
	before, err := unix.IoctlGetTermios(int(term.slave.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	c := term.start(t, "--dir", dir, "status", "--watch")
	at := term.await(t, 0, enterScreen)
	at = term.await(t, at, "first")
	s.Show(picture(true, "second"))
	at = term.await(t, at, "second")
	s.Kill()
	at = term.await(t, at, "agent away")
	(&fakenode.Server{}).Start(t, dir).Show(picture(true, "third"))
	at = term.await(t, at, "third")
	if _, err := term.master.Write([]byte{3}); err != nil { // ctrl-C
		t.Fatal(err)
	}
	term.await(t, at, leaveScreen)
	if err := c.Wait(); err != nil {
		t.Errorf("ended with %v, want 0", err)
	}
	after, err := unix.IoctlGetTermios(int(term.slave.Fd()), unix.TCGETS)
	if err != nil || *after != *before {
		t.Errorf("the terminal's settings changed: %v", err)
	}
}

// A stream is one document per line, and ends with 0 on a signal.
func TestStatusWatchAsStream(t *testing.T) {
	dir := t.TempDir()
	(&fakenode.Server{}).Start(t, dir).Show(picture(true, "first"))
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	c := exec.CommandContext(t.Context(), os.Args[0], "--dir", dir, "status", "--watch", "-o", "json")
	c.Env, c.Stdout = append(os.Environ(), asKerf+"=1"), out
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

// The command keeps the terminal: it is its controlling one, and ctrl-C reaches it.
func TestRunKeepsTheTerminal(t *testing.T) {
	dir := t.TempDir()
	granting(t, dir, nil)
	term := openTerminal(t, 90, 12)
	c := term.start(t, "--dir", dir, "run", "--memory", "1GiB", "--", "sh", "-c", "trap 'echo caught; exit 9' INT; tty; stty size </dev/tty; while :; do sleep 0.05; done")
	at := term.await(t, 0, term.slave.Name())
	at = term.await(t, at, "12 90")
	if _, err := term.master.Write([]byte{3}); err != nil {
		t.Fatal(err)
	}
	term.await(t, at, "caught")
	if err := c.Wait(); c.ProcessState.ExitCode() != 9 {
		t.Errorf("ended with %v, want 9", err)
	}
}
