// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// eventually polls until check returns nil. It fails the test with check's last error when patience is over.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	limit := *patience
	if waited.Load() {
		limit = min(limit, 10*time.Second)
	}
	deadline := time.Now().Add(limit)
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 250*time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			waited.Store(true)
			t.Fatalf("%s: did not come within %s: %v", what, limit, err)
		}
		time.Sleep(pause)
	}
}

// result is what a command that was waited for left.
type result struct {
	code     int // -1: ended by a signal
	signal   syscall.Signal
	out, err string
}

func (r result) String() string {
	return fmt.Sprintf("exit %d, signal %d\nstdout: %s\nstderr: %s", r.code, r.signal, r.out, r.err)
}

// call runs a command to its end.
func call(t *testing.T, env []string, path string, args ...string) result {
	t.Helper()
	// also used when the test cleans up
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), *patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = env
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("%s %q did not end within %s\nstderr: %s", filepath.Base(path), args, *patience, errOut.String())
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s %q: %v", filepath.Base(path), args, err)
	}
	return resultOf(cmd.ProcessState, out.String(), errOut.String())
}

func resultOf(s *os.ProcessState, out, errOut string) result {
	r := result{code: s.ExitCode(), out: out, err: errOut}
	if ws, ok := s.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		r.signal = ws.Signal()
	}
	return r
}

// proc is a process in the background. Its output goes to files, which never block it and may be read at
// any time.
type proc struct {
	t         *testing.T
	cmd       *exec.Cmd
	out, err  string // files
	exited    chan struct{}
	lastState *os.ProcessState
	// anchor is a process that stays in the group. Without it the group's number could be another group's by the time
	// of kill: some tests have the kernel give out numbers again.
	anchor *exec.Cmd
	killed sync.Once
}

// begin starts cmd; it is killed with its process group and reaped when the test ends.
func begin(t *testing.T, dir, name string, cmd *exec.Cmd) *proc {
	t.Helper()
	p := launch(t, dir, name, cmd)
	t.Cleanup(p.kill)
	return p
}

// launch starts cmd, which the caller ends.
func launch(t *testing.T, dir, name string, cmd *exec.Cmd) *proc {
	t.Helper()
	p := &proc{t: t, cmd: cmd, exited: make(chan struct{})}
	open := func(kind string) *os.File {
		f, err := os.CreateTemp(dir, name+"-*."+kind)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	out, errOut := open("out"), open("err")
	defer out.Close()
	defer errOut.Close()
	p.out, p.err = out.Name(), errOut.Name()
	cmd.Stdout, cmd.Stderr = out, errOut
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL // a test binary that is ended from outside cleans nothing up
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.anchor = exec.Command("sleep", "infinity")
	p.anchor.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: p.pid(), Pdeathsig: syscall.SIGKILL}
	if err := p.anchor.Start(); err != nil { // the process was not waited for, so its group is there
		_ = cmd.Process.Kill()
		t.Fatal(err)
	}
	go func() {
		_ = cmd.Wait() // the state tells
		p.lastState = cmd.ProcessState
		close(p.exited)
	}()
	return p
}

func (p *proc) pid() int { return p.cmd.Process.Pid }

// kill ends the process and its group, and waits until it is gone.
func (p *proc) kill() {
	p.killed.Do(func() {
		_ = syscall.Kill(-p.pid(), syscall.SIGKILL) // the group may outlive its leader
		_ = p.anchor.Wait()
	})
	<-p.exited
}

// signal sends a signal to the process alone, as a service manager or a terminal's user would.
func (p *proc) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("signal %v to %d: %v", s, p.pid(), err)
	}
}

// wait waits for the end by itself.
func (p *proc) wait() result {
	p.t.Helper()
	select {
	case <-p.exited:
	case <-time.After(*patience):
		p.t.Fatalf("%q did not end within %s\nstdout: %s\nstderr: %s", p.cmd.Args, *patience, p.stdout(), p.stderr())
	}
	return resultOf(p.lastState, p.stdout(), p.stderr())
}

func (p *proc) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

func (p *proc) stdout() string { return p.read(p.out) }
func (p *proc) stderr() string { return p.read(p.err) }

// read returns a file's text; a file that is not there has none.
func (p *proc) read(file string) string {
	p.t.Helper()
	data, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		p.t.Fatal(err)
	}
	return string(data)
}

// lines waits for n whole lines on stdout. A process that ends before is an error of the test.
func (p *proc) lines(n int) []string {
	p.t.Helper()
	var got []string
	eventually(p.t, fmt.Sprintf("%d lines of %q", n, p.cmd.Args), func() error {
		ended := !p.running()
		text := p.stdout()
		got = strings.Split(text, "\n")
		got = got[:len(got)-1]
		if len(got) >= n {
			return nil
		}
		if ended {
			p.t.Fatalf("%q ended with %d of %d lines: %v", p.cmd.Args, len(got), n, p.wait())
		}
		return fmt.Errorf("%d lines so far", len(got))
	})
	return got
}
