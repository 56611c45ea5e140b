// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// commandTime bounds each command that is run here.
const commandTime = 3 * time.Minute

// node is the machine that node.sh makes.
type node struct {
	script string
	// env is what "node.sh env" prints.
	env map[string]string
	// source is the folder of the Kerf that runs, if it is another one: TestUpgradeFrom sets it.
	source string
}

// kerf is the command of the Kerf that runs. Only it knows the node API of its agent.
func (n *node) kerf() string {
	if n.source != "" {
		return filepath.Join(n.source, "bin", "kerf")
	}
	return n.program("kerf")
}

func openNode() (*node, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("the node needs root")
	}
	script, err := filepath.Abs("node/node.sh")
	if err != nil {
		return nil, err
	}
	return &node{script: script}, nil
}

// up starts the node or what of it does not run, with the script's progress on stderr.
func (n *node) up() error {
	// Building everything for the first time takes many minutes on a small machine.
	ctx, cancel := context.WithTimeout(context.Background(), 45*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, n.script, "up")
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("node.sh up: %w", err)
	}
	return n.refresh()
}

// refresh reads again where things are: the node's init is another process after a restart.
func (n *node) refresh() error {
	r := command(n.script, "env")
	if r.err != nil {
		return fmt.Errorf("node.sh env: %v", r)
	}
	n.env = settings(r.out)
	return nil
}

// settings reads the shell assignments of "node.sh env".
func settings(text string) map[string]string {
	env := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		env[name] = strings.NewReplacer(`\`, "", "'", "").Replace(value)
	}
	return env
}

// path is a file of the node as this machine can open it, sockets included.
func (n *node) path(file string) string {
	return filepath.Join("/proc", n.env["NODE_INIT"], "root", file)
}

// inNode runs its arguments in a cgroup of the node, where everything that starts on a node is. nsenter leaves a
// process in the cgroup of this test, which is invisible in the node.
const inNode = `d=/sys/fs/cgroup
[ -e $d/cgroup.controllers ] || d=$d/unified
[ ! -e $d/init ] || d=$d/init
echo $$ >$d/cgroup.procs && exec "$@"`

// in runs a command inside the node.
func (n *node) in(args ...string) result {
	enter := []string{"-t", n.env["NODE_INIT"], "-m", "-u", "-i", "-n", "-p", "-C", "--", "sh", "-c", inNode, "sh"}
	return command("nsenter", append(enter, args...)...)
}

// program is a program that "make build" made.
func (n *node) program(name string) string { return filepath.Join(n.env["REPO"], "bin", name) }

// busybox is a program that the node has, with the applets that its own tools may lack.
func (n *node) busybox() string { return n.env["DEB"] + "/bin/busybox" }

// do runs a subcommand of node.sh, which must succeed.
func (n *node) do(t *testing.T, args ...string) string {
	t.Helper()
	r := command(n.script, args...)
	if r.err != nil {
		t.Fatalf("node.sh %s: %v", strings.Join(args, " "), r)
	}
	return r.out
}

// restart ends a daemon of the node in an orderly way and starts it again.
func (n *node) restart(t *testing.T, daemon string) {
	t.Helper()
	n.do(t, "restart", daemon)
}

// log is the file into which a daemon writes.
func (n *node) log(daemon string) string { return filepath.Join(n.env["LOG"], daemon+".log") }

// result is what a command has left.
type result struct {
	out, errOut string
	err         error
}

func (r result) String() string {
	return fmt.Sprintf("%v; stdout %q, stderr %q", r.err, r.out, r.errOut)
}

// command runs one to its end, in bounded time.
func command(name string, args ...string) result {
	return commandWith("", name, args...)
}

// commandWith gives it input.
func commandWith(input, name string, args ...string) result {
	ctx, cancel := context.WithTimeout(context.Background(), commandTime)
	defer cancel()
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &errOut
	// A daemon that the command starts has its own files; if it keeps ours, it does not delay the test. On a busy
	// machine the output of an ended program takes time to arrive.
	cmd.WaitDelay = 30 * time.Second
	err := cmd.Run()
	return result{out.String(), errOut.String(), err}
}

// poll tries until f is content or patience ends; then the last error is returned.
func poll(what string, f func() error) error {
	return pollFor(*patience, what, f)
}

func pollFor(limit time.Duration, what string, f func() error) error {
	deadline := time.Now().Add(limit)
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, 250*time.Millisecond) {
		err := f()
		if err == nil {
			return nil
		}
		if _, ok := errors.AsType[finalError](err); ok {
			return fmt.Errorf("%s: %w", what, err)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s does not come in %v: %w", what, limit, err)
		}
		time.Sleep(wait)
	}
}

// finalError tells poll that waiting on is of no use.
type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

func final(format string, args ...any) error { return finalError{fmt.Errorf(format, args...)} }

// failer is what a helper fails: a test, or a case of one, which keeps the message.
type failer interface {
	Helper()
	Fatal(args ...any)
}

// eventually fails the test unless f becomes content.
func eventually(t failer, what string, f func() error) {
	t.Helper()
	if err := poll(what, f); err != nil {
		t.Fatal(err)
	}
}
