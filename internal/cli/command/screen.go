// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/term"

	"github.com/kerf-gpu/kerf/internal/present"
)

// Screen tells the size of the terminal that the output goes to; ok is false when it goes elsewhere.
type Screen func() (width, height int, ok bool)

// screenOf reads the size at each call, because a window changes.
func screenOf(f *os.File) Screen {
	return func() (int, int, bool) {
		fd := int(f.Fd())
		if !term.IsTerminal(fd) || !takesSequences(f) {
			return 0, 0, false
		}
		w, h, err := term.GetSize(fd)
		if err != nil || w <= 0 || h <= 0 {
			return 80, 24, true
		}
		return w, h, true
	}
}

// Colors tells whether the output takes colours and the user wants them.
func (a *App) Colors() bool {
	_, _, terminal := a.Screen()
	return terminal && a.Getenv("NO_COLOR") == "" && a.Getenv("TERM") != "dumb"
}

// Draw puts text on the screen from its upper left, truncated to its height. Lines are overwritten and not cleared
// first, which would flicker.
func (a *App) Draw(text []byte) error {
	_, height, _ := a.Screen()
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if height > 1 && len(lines) > height {
		more := len(lines) - height + 1
		lines = append(lines[:height-1], fmt.Sprintf("... %d more lines", more))
	}
	var b bytes.Buffer
	b.WriteString(home)
	for i, l := range lines {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(l + clearLine)
	}
	b.WriteString(clearBelow)
	_, err := a.Out.Write(b.Bytes())
	return err
}

// The terminal's sequences: the other screen without a cursor, and back.
const (
	EnterScreen = "\x1b[?1049h\x1b[?25l"
	LeaveScreen = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
)

// RenderCluster renders a cluster: in the form for scripts, or with table for users.
func (a *App) RenderCluster(l *Listing, p present.Cluster, table func(present.Cluster, present.Options) string) ([]byte,
	error) {
	if text, ok, err := l.Encode(p, p.Names); ok {
		return text, err
	}
	return []byte(table(p, present.Options{Color: a.Colors(), Wide: l.Wide()})), nil
}

// FD is the descriptor of a file.
func FD(f *os.File) int { return int(f.Fd()) }

// InterruptedError says that a signal ended the command.
type InterruptedError struct{ signal syscall.Signal }

// Error names the signal.
func (e *InterruptedError) Error() string { return "stopped by signal: " + e.signal.String() }

// Code is the exit status that a shell shows for it.
func (e *InterruptedError) Code() int { return 128 + int(e.signal) }

// Interrupts turns the signals that ask for an end into the end of a context.
type Interrupts struct {
	ch     chan os.Signal
	done   chan struct{}
	joined sync.WaitGroup
	cancel context.CancelCauseFunc
}

// Catch returns a context that ends, with an *InterruptedError as its cause, when the process is asked to
// end. Signals that were ignored when the process started (nohup, background jobs) stay ignored, also in the
// program that it becomes.
func Catch(parent context.Context) (context.Context, *Interrupts) {
	ctx, cancel := context.WithCancelCause(parent)
	i := &Interrupts{ch: make(chan os.Signal, 1), done: make(chan struct{}), cancel: cancel}
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) {
			signal.Notify(i.ch, s)
		}
	}
	i.joined.Go(func() {
		select {
		case s := <-i.ch:
			i.note(s)
		case <-i.done:
		}
	})
	return ctx, i
}

func (i *Interrupts) note(s os.Signal) {
	if n, ok := s.(syscall.Signal); ok {
		i.cancel(&InterruptedError{n})
	}
}

// Release restores the defaults of the signals. No signal is lost. One that came before Release has ended the context
// when Release returns, and one that comes later does what it does by default.
func (i *Interrupts) Release() {
	signal.Stop(i.ch) // waits until what has come is in the channel
	close(i.done)
	i.joined.Wait()
	select {
	case s := <-i.ch:
		i.note(s)
	default:
	}
}

// Interruptible runs f with a context that ends on ctrl-C and its like.
func Interruptible(parent context.Context, f func(context.Context) error) error {
	ctx, signals := Catch(parent)
	defer signals.Release()
	return f(ctx)
}
