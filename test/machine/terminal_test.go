// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal is a pseudo-terminal: what a person types into, and what a program has.
func terminal(t *testing.T) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { person.Close() })
	raw, err := person.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var number int
	var opErr error
	err = raw.Control(func(fd uintptr) {
		if opErr = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); opErr == nil {
			number, opErr = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
	})
	if err = errors.Join(err, opErr); err != nil {
		t.Fatal(err)
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	return person, program
}

// The program has the terminal: it is one for it, and ctrl-C reaches it.
func TestTerminalIsThePrograms(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "t4x4"})
	person, tty := terminal(t)
	cmd := exec.Command(program("kerf"), "--run-dir", m.dir, "run", "--memory", "1GiB", "--",
		"sh", "-c",
		`trap 'echo interrupted; exit 9' INT; test -t 0 -a -t 1 -a -t 2 && echo on a terminal; while :; do sleep 0.05; done`)
	cmd.Env = m.env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var seen strings.Builder
	buf := make([]byte, 4096)
	wait := func(text string) {
		eventually(t, text+" on the terminal", func() error {
			n, err := person.Read(buf)
			seen.Write(buf[:max(n, 0)])
			if strings.Contains(seen.String(), text) {
				return nil
			}
			return errors.Join(fmt.Errorf("seen: %q", seen.String()), err)
		})
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	wait("on a terminal")
	if _, err := person.WriteString("\x03"); err != nil {
		t.Fatal(err)
	}
	wait("interrupted")
	var exit *exec.ExitError
	if err := <-ended; !errors.As(err, &exit) || exit.ExitCode() != 9 {
		t.Errorf("program after ctrl-C: %v, want exit 9", err)
	}
	m.noGrants()
}
