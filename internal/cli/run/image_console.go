// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/term"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/containerd"
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
func (t *console) follow(c *containerd.Container) {
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

func (t *console) resize(c *containerd.Container) {
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
