// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
	"github.com/kerf-gpu/kerf/internal/mountns"
	"github.com/kerf-gpu/kerf/test/clitest"
)

// The program goes on as the process that kerf was: nothing between it and its parent.
func TestRunBecomesTheCommand(t *testing.T) {
	dir := t.TempDir()
	clitest.Granting(t, dir, nil)
	r := clitest.Kerf(t, func(c *exec.Cmd) { c.Dir = "/" }, "--run-dir", dir, "run", "--memory", "10GiB", "--",
		"sh", "-c", "echo $$ $PPID $(pwd) $0 $1 $CUDA_VISIBLE_DEVICES $KERF_GRANT; umask", "arg0", "--memory")
	want := fmt.Sprintf("%d %d / arg0 --memory GPU-a g-1\n%04o\n", r.Pid, os.Getpid(), umask())
	if r.Code != 0 || r.Out != want || r.ErrOut != "" {
		t.Errorf("got %d, %q, %q; want %q", r.Code, r.Out, r.ErrOut, want)
	}
}

func umask() int {
	m := syscall.Umask(0)
	syscall.Umask(m)
	return m
}

func TestRunHasTheCommandsOwnEnd(t *testing.T) {
	dir := t.TempDir()
	clitest.Granting(t, dir, nil)
	for _, code := range []int{0, 1, 7, 125, 255} {
		if r := clitest.Kerf(t, nil, "--run-dir", dir, "run", "--memory", "10GiB", "--", "sh", "-c",
			"exit "+strconv.Itoa(code)); r.Code != code {
			t.Errorf("got %d, want %d (%s)", r.Code, code, r.ErrOut)
		}
	}
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGINT, syscall.SIGSEGV} {
		r := clitest.Kerf(t, nil, "--run-dir", dir, "run", "--memory", "10GiB", "--", "sh", "-c",
			fmt.Sprintf("kill -%d $$", sig))
		if s, ok := r.State.Sys().(syscall.WaitStatus); !ok || !s.Signaled() || s.Signal() != sig {
			t.Errorf("ended with %v, want signal %v", r.State, sig)
		}
	}
}

func TestRunPassesStdin(t *testing.T) {
	dir := t.TempDir()
	clitest.Granting(t, dir, nil)
	r := clitest.Kerf(t, func(c *exec.Cmd) { c.Stdin = strings.NewReader("a line\nanother") }, "--run-dir", dir, "run",
		"--memory", "10GiB", "--", "cat")
	if r.Code != 0 || r.Out != "a line\nanother" {
		t.Errorf("got %d, %q", r.Code, r.Out)
	}
}

// Nothing of kerf's (the connection, the runtime's own) is open in the program; what was open before is.
func TestRunLeaksNoFile(t *testing.T) {
	dir := t.TempDir()
	clitest.Granting(t, dir, nil)
	inherited, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer inherited.Close()
	// What the test itself was started with open is in both.
	script := "for f in /proc/$$/fd/*; do echo ${f##*/}; done"
	with := func(c *exec.Cmd) { c.ExtraFiles = []*os.File{inherited} }
	direct := exec.CommandContext(t.Context(), "sh", "-c", script)
	with(direct)
	want, err := direct.Output()
	if err != nil {
		t.Fatal(err)
	}
	r := clitest.Kerf(t, with, "--run-dir", dir, "run", "--memory", "10GiB", "--", "sh", "-c", script)
	if r.Out != string(want) || !slices.Contains(strings.Fields(r.Out), "3") {
		t.Errorf("open files %q, without kerf %q (%s)", r.Out, want, r.ErrOut)
	}
}

// Signals that the caller ignores stay ignored, and all others have their defaults.
func TestRunKeepsSignalDispositions(t *testing.T) {
	dir := t.TempDir()
	clitest.Granting(t, dir, nil)
	self := os.Args[0]
	for name, tt := range map[string]struct{ trap, want string }{
		"ignored":  {"trap '' INT HUP; ", "ignored"},
		"defaults": {"", "none"},
	} {
		t.Run(name, func(t *testing.T) {
			c := exec.CommandContext(t.Context(), "sh", "-c", tt.trap+"exec "+self+" --run-dir "+dir+
				" run --memory 10GiB -- grep SigIgn /proc/self/status")
			c.Env = append(os.Environ(), clitest.AsKerf+"=1")
			out, err := c.Output()
			if err != nil {
				t.Fatal(err)
			}
			mask, err := strconv.ParseUint(strings.Fields(string(out))[1], 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			bits := uint64(1<<(syscall.SIGINT-1) | 1<<(syscall.SIGHUP-1))
			if got := map[bool]string{true: "ignored", false: "none"}[mask&bits == bits]; got != tt.want {
				t.Errorf("ignored signals %x: %s, want %s", mask, got, tt.want)
			}
			if tt.want == "none" && mask&bits != 0 {
				t.Errorf("ignored signals %x", mask)
			}
		})
	}
}

// A script without an interpreter line runs as it does from a shell; a binary that is none is refused.
func TestRunScripts(t *testing.T) {
	dir := t.TempDir()
	clitest.Granting(t, dir, nil)
	script := clitest.WriteFile(t, dir, "script", "echo script $1; exit 3\n", 0o755)
	if r := clitest.Kerf(t, nil, "--run-dir", dir, "run", "--memory", "10GiB", "--", script, "x"); r.Code != 3 ||
		r.Out != "script x\n" {
		t.Errorf("script: got %d, %q, %q", r.Code, r.Out, r.ErrOut)
	}
	for name, tt := range map[string]struct {
		content string
		code    int
	}{
		"garbage":             {"\x00\x01\x02garbage", 126},
		"missing-interpreter": {"#!/no/such/interpreter\n", 127},
	} {
		status := filepath.Join(dir, name+".json")
		file := clitest.WriteFile(t, dir, name, tt.content, 0o755)
		r := clitest.Kerf(t, nil, "--run-dir", dir, "run", "--memory", "10GiB", "--status-file", status, "--", file)
		if r.Code != tt.code || !strings.HasPrefix(r.ErrOut, "kerf run: ") {
			t.Errorf("%s: got %d, %q", name, r.Code, r.ErrOut)
		}
		if s := readStatus(t, status); s.State != "refused" || s.Error == nil {
			t.Errorf("%s: the status file says %+v after a failed exec", name, s)
		}
	}
}

// The other GPUs' files do not open in the program, and do outside of it.
func TestRunHidesOtherGPUs(t *testing.T) {
	if !mountns.Allowed() {
		t.Skip("hiding needs CAP_SYS_ADMIN")
	}
	dir := t.TempDir()
	mine, other := filepath.Join(dir, "nvidia0"), filepath.Join(dir, "nvidia1")
	for _, p := range []string{mine, other} {
		l, err := net.Listen("unix", p)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	clitest.Granting(t, dir, func(r *nodeapi.ActivateResponse) {
		r.Devices, r.HiddenDevices = []string{mine}, []string{other}
	})
	r := clitest.Kerf(t, nil, "--run-dir", dir, "run", "--memory", "10GiB", "--", "sh", "-c", "stat -c %F "+mine+" "+
		other)
	if r.Code != 0 || r.Out != "socket\ncharacter special file\n" {
		t.Errorf("got %d, %q, %q", r.Code, r.Out, r.ErrOut)
	}
	if st, err := os.Stat(other); err != nil || st.Mode()&os.ModeSocket == 0 {
		t.Errorf("outside: %v, %v", st, err)
	}
}

// A program that was to be kept from other GPUs does not run when it cannot be kept from them.
func TestRunFailsClosedWhenHidingFails(t *testing.T) {
	dir := t.TempDir()
	clitest.Granting(t, dir, func(r *nodeapi.ActivateResponse) { r.HiddenDevices = []string{"not/absolute"} })
	marker, status := filepath.Join(dir, "ran"), filepath.Join(dir, "status.json")
	r := clitest.Kerf(t, nil, "--run-dir", dir, "run", "--memory", "10GiB", "--status-file", status, "--", "touch",
		marker)
	if !mountns.Allowed() {
		t.Skip("hiding needs CAP_SYS_ADMIN")
	}
	if _, err := os.Stat(marker); err == nil || r.Code != 125 || !strings.Contains(r.ErrOut, "hide the other GPUs") {
		t.Errorf("got %d, %q, marker %v", r.Code, r.ErrOut, err)
	}
	if s := readStatus(t, status); s.State != "refused" {
		t.Errorf("status file: %+v", s)
	}
}

// The command keeps the terminal: it is its controlling one, and ctrl-C reaches it.
func TestRunKeepsTheTerminal(t *testing.T) {
	dir := t.TempDir()
	clitest.Granting(t, dir, nil)
	term := clitest.OpenTerminal(t, 90, 12)
	c := term.Start(t, "--run-dir", dir, "run", "--memory", "1GiB", "--", "sh", "-c",
		"trap 'echo caught; exit 9' INT; tty; stty size </dev/tty; while :; do sleep 0.05; done")
	at := term.Await(t, 0, term.Slave.Name())
	at = term.Await(t, at, "12 90")
	if _, err := term.Master.Write([]byte{3}); err != nil {
		t.Fatal(err)
	}
	term.Await(t, at, "caught")
	if err := c.Wait(); c.ProcessState.ExitCode() != 9 {
		t.Errorf("ended with %v, want 9", err)
	}
}
