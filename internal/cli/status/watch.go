// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/term"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/nodeclient"
	"github.com/kerf-gpu/kerf/internal/present"
)

// statusWatch shows every picture until it is interrupted, over restarts of the agent. On a terminal it
// draws in place; elsewhere it prints one document after the other.
func statusWatch(parent context.Context, a *command.App, o *statusOptions) error {
	return command.Interruptible(parent, func(ctx context.Context) error {
		_, _, terminal := a.Screen()
		see, away := streamTo(a, o)
		if terminal && !o.Script() {
			_, _ = fmt.Fprint(a.Out, command.EnterScreen)
			defer func() { _, _ = fmt.Fprint(a.Out, command.LeaveScreen) }()
			see, away = drawTo(a, o)
		}
		err := nodeclient.Follow(ctx, a.Dir, watchInterval, see, away)
		if _, ok := errors.AsType[*command.InterruptedError](err); ok {
			return nil // ctrl-C is how a watch ends
		}
		return command.Fail(err)
	})
}

// streamTo prints pictures one after the other: JSON one in a line, YAML as documents of a stream, text with
// an empty line between. An agent that is away is said once on stderr.
func streamTo(a *command.App, o *statusOptions) (see func(*nodeapi.GetNodeResponse) error, away func(error) error) {
	first, said := true, ""
	see = func(p *nodeapi.GetNodeResponse) error {
		said = ""
		var text []byte
		var err error
		switch o.Output {
		case "json":
			text, err = present.JSON(present.FromNode(p).InNamespace(a.Overrides.Context.Namespace), false)
		case "yaml":
			text, err = render(a, o, p)
			text = append([]byte("---\n"), text...)
		default:
			if text, err = render(a, o, p); !first && !o.Script() {
				text = append([]byte("\n"), text...)
			}
		}
		if err != nil {
			return err
		}
		first = false
		_, err = a.Out.Write(text)
		return err
	}
	away = func(err error) error {
		if hopeless(err) {
			return err
		}
		if err.Error() != said {
			said = err.Error()
			_, _ = fmt.Fprintf(a.ErrOut, "kerf status: agent away: %s\n", said)
		}
		return nil
	}
	return see, away
}

// drawTo draws pictures in place. While the agent is away the last picture stays, with a line above that
// says so.
func drawTo(a *command.App, o *statusOptions) (see func(*nodeapi.GetNodeResponse) error, away func(error) error) {
	var last []byte
	see = func(p *nodeapi.GetNodeResponse) error {
		text, err := render(a, o, p)
		if err != nil {
			return err
		}
		last = text
		return a.Draw(text)
	}
	away = func(err error) error {
		if hopeless(err) {
			return err
		}
		first := []rune("agent away: " + err.Error())
		if width, _, _ := a.Screen(); len(first) > width {
			first = first[:width]
		}
		return a.Draw(append([]byte(string(first)+"\n\n"), last...))
	}
	return see, away
}

// keyboard gives keys as they are pressed, without showing them. No key is a signal then, ctrl-C too.
type keyboard struct {
	in    *os.File
	saved *term.State
	// closed is set while mu is locked, so that no press is under way or follows after close.
	mu     sync.Mutex
	closed bool
}

// interrupt is what ctrl-C sends.
const interrupt = "\x03"

// openKeyboard takes the terminal that in is; nil where it is none.
func openKeyboard(in io.Reader) (*keyboard, error) {
	f, isFile := in.(*os.File)
	if !isFile || !term.IsTerminal(command.FD(f)) {
		return nil, nil //nolint:nilnil // there is none, and that is no error
	}
	saved, err := term.MakeRaw(command.FD(f))
	if err != nil {
		return nil, fmt.Errorf("take the terminal: %w", err)
	}
	return &keyboard{in: f, saved: saved}, nil
}

// follow calls press with each key until close, from a separate goroutine. Not every system can end the reading of a
// terminal, so the goroutine may wait for a key until the process ends.
func (k *keyboard) follow(press func(key string)) {
	go func() {
		buf := make([]byte, 64)
		for {
			n, err := k.in.Read(buf)
			if err != nil || n == 0 || !k.pass(keysIn(string(buf[:n])), press) {
				return // the terminal is gone, or given back
			}
		}
	}()
}

// pass calls press with each key. It returns false after close.
func (k *keyboard) pass(keys []string, press func(key string)) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range keys {
		if !k.closed {
			press(key)
		}
	}
	return !k.closed
}

// close gives the terminal back as it was.
func (k *keyboard) close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	if err := term.Restore(command.FD(k.in), k.saved); err != nil {
		return fmt.Errorf("give the terminal back: %w", err)
	}
	return nil
}

// keysIn are the keys that a terminal sent: letters as they are, arrows by their names, and of other sequences nothing.
func keysIn(text string) []string {
	const escape = "\x1b["
	var keys []string
	for text != "" {
		rest, sequence := strings.CutPrefix(text, escape)
		if !sequence {
			keys = append(keys, text[:1])
			text = text[1:]
			continue
		}
		end := strings.IndexFunc(rest, func(r rune) bool { return r >= '@' && r <= '~' })
		if end < 0 {
			return keys
		}
		switch rest[:end+1] {
		case "C":
			keys = append(keys, "right")
		case "D":
			keys = append(keys, "left")
		}
		text = rest[end+1:]
	}
	return keys
}
