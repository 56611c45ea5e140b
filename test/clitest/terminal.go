// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package clitest

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Terminal is a pseudo terminal and what was written to it.
type Terminal struct {
	Master, Slave *os.File

	mu   sync.Mutex
	seen strings.Builder
}

// OpenTerminal makes a terminal of this size and reads it until the test ends.
func OpenTerminal(t *testing.T, width, height uint16) *Terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: height, Col: width}); err != nil {
		t.Fatal(err)
	}
	term := &Terminal{Master: master, Slave: slave}
	var reader sync.WaitGroup
	reader.Go(func() {
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			term.mu.Lock()
			term.seen.Write(buf[:n])
			term.mu.Unlock()
			if err != nil {
				return
			}
		}
	})
	t.Cleanup(func() {
		_ = slave.Close() // the reader then gets EIO
		reader.Wait()
		_ = master.Close()
	})
	return term
}

// text is what was written so far.
func (p *Terminal) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen.String()
}

// Await waits until s was written, after what is already past.
func (p *Terminal) Await(t *testing.T, past int, s string) int {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		text := p.text()
		if i := strings.Index(text[past:], s); i >= 0 {
			return past + i + len(s)
		}
		if time.Now().After(deadline) {
			t.Fatalf("no %q on the terminal, but %q", s, text[past:])
		}
	}
}

// Start runs kerf on the terminal, in a new session that the terminal controls.
func (p *Terminal) Start(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	c := exec.CommandContext(t.Context(), os.Args[0], args...)
	c.Env = append(os.Environ(), AsKerf+"=1", "NO_COLOR=", "TERM=xterm")
	c.Stdin, c.Stdout, c.Stderr = p.Slave, p.Slave, p.Slave
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c
}

// Press types on the terminal.
func (p *Terminal) Press(t *testing.T, keys string) {
	t.Helper()
	if _, err := p.Master.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}
