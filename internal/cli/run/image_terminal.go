// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/containerd/runner"
)

// console is kerf's own terminal while a container's program has it. All methods take nil, which is none.
type console struct {
	in, out *os.File
	saved   *term.State

	ch     chan os.Signal
	done   chan struct{}
	joined sync.WaitGroup
}

// openConsole is the terminal that in and out both are, or nil.
func openConsole(in io.Reader, out io.Writer) *console {
	i, isFile := in.(*os.File)
	o, isFile2 := out.(*os.File)
	if !isFile || !isFile2 || !term.IsTerminal(command.FD(i)) || !term.IsTerminal(command.FD(o)) {
		return nil
	}
	return &console{in: i, out: o}
}

// raw leaves every key to the program.
func (t *console) raw() error {
	if t == nil {
		return nil
	}
	saved, err := term.MakeRaw(command.FD(t.in))
	if err != nil {
		return fmt.Errorf("take the terminal: %w", err)
	}
	t.saved = saved
	return nil
}

// follow keeps the size of the container's terminal that of kerf's, until restore.
func (t *console) follow(c *runner.Container) {
	if t == nil {
		return
	}
	t.ch, t.done = make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(t.ch, syscall.SIGWINCH)
	t.joined.Go(func() {
		for {
			t.resize(c)
			select {
			case <-t.ch:
			case <-t.done:
				return
			}
		}
	})
}

func (t *console) resize(c *runner.Container) {
	width, height, err := term.GetSize(command.FD(t.out))
	if err != nil || width <= 0 || height <= 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), signalWindow)
	defer cancel()
	_ = c.Resize(ctx, width, height) // a size is not worth a word on the program's own screen
}

// restore gives the terminal back as it was.
func (t *console) restore() error {
	if t == nil {
		return nil
	}
	if t.done != nil {
		signal.Stop(t.ch)
		close(t.done)
		t.joined.Wait()
	}
	if t.saved == nil {
		return nil
	}
	if err := term.Restore(command.FD(t.in), t.saved); err != nil {
		return fmt.Errorf("give the terminal back: %w", err)
	}
	return nil
}

// signalWindow bounds one signal's way to the container.
const signalWindow = 10 * time.Second

// forwarder passes the signals that kerf gets on to a container's program, until stop.
type forwarder struct {
	container *runner.Container
	ch        chan os.Signal
	done      chan struct{}
	joined    sync.WaitGroup

	mu   sync.Mutex
	died syscall.Signal
}

// forwardTo starts to pass signals on. Those that were ignored when kerf started (nohup) stay ignored.
func forwardTo(c *runner.Container) *forwarder {
	f := &forwarder{container: c, ch: make(chan os.Signal, 16), done: make(chan struct{})}
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1,
		syscall.SIGUSR2} {
		if !signal.Ignored(s) {
			signal.Notify(f.ch, s)
		}
	}
	f.joined.Go(func() {
		for {
			select {
			case s := <-f.ch:
				if n, ok := s.(syscall.Signal); ok {
					f.pass(n)
				}
			case <-f.done:
				return
			}
		}
	})
	return f
}

// pass gives the program one signal. The kernel keeps signals without a handler from the first process of a pid
// namespace, which would end a program that runs by itself. So pass ends it, and its exit status is that of the signal.
func (f *forwarder) pass(s syscall.Signal) {
	ctx, cancel := context.WithTimeout(context.Background(), signalWindow)
	defer cancel()
	if fatal(f.container.PID(), s) {
		f.mu.Lock()
		f.died = s
		f.mu.Unlock()
		s = syscall.SIGKILL
	}
	_ = f.container.Signal(ctx, s) // a program that ended meanwhile needs none; a runtime that is away, another try
}

// ended is the signal that the program was ended for, or 0.
func (f *forwarder) ended() syscall.Signal {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.died
}

// stop gives the signals back to their defaults; nil has nothing to stop.
func (f *forwarder) stop() {
	if f == nil {
		return
	}
	signal.Stop(f.ch)
	close(f.done)
	f.joined.Wait()
}

// fatal tells whether a process neither handles nor ignores the signal, by the masks that the kernel shows.
func fatal(pid int, s syscall.Signal) bool {
	file, err := os.Open("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return false
	}
	defer file.Close()
	handled, known := uint64(0), 0
	for lines := bufio.NewScanner(file); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ":")
		if name != "SigCgt" && name != "SigIgn" {
			continue
		}
		mask, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		if err != nil {
			return false
		}
		handled |= mask
		known++
	}
	return known == 2 && handled&(1<<(uint(s)-1)) == 0
}
