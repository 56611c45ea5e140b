// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

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

// Release gives the signals back to their defaults. No signal is lost: one that came before release has
// ended the context when release returns, and one that comes later does what it does by default.
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
