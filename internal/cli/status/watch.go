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

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	nodev1 "github.com/kerf-gpu/kerf/api/node/v1"
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
func streamTo(a *command.App, o *statusOptions) (see func(*nodev1.GetNodeResponse) error, away func(error) error) {
	first, said := true, ""
	see = func(p *nodev1.GetNodeResponse) error {
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
func drawTo(a *command.App, o *statusOptions) (see func(*nodev1.GetNodeResponse) error, away func(error) error) {
	var last []byte
	see = func(p *nodev1.GetNodeResponse) error {
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

// keyboard gives keys as they are pressed, without showing them. The key ctrl-C stays a signal. Those that would leave
// the screen as it is, ctrl-Z and ctrl-backslash, do nothing.
type keyboard struct {
	in     *os.File
	saved  unix.Termios
	wake   *os.File // closed to end the reading
	asleep *os.File
	joined sync.WaitGroup
}

// openKeyboard takes the terminal that in is; nil where it is none.
func openKeyboard(in io.Reader) (*keyboard, error) {
	f, isFile := in.(*os.File)
	if !isFile || !term.IsTerminal(command.FD(f)) {
		return nil, nil //nolint:nilnil // there is none, and that is no error
	}
	saved, err := unix.IoctlGetTermios(command.FD(f), unix.TCGETS)
	if err != nil {
		return nil, fmt.Errorf("read the terminal's settings: %w", err)
	}
	asleep, wake, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("wait for keys: %w", err)
	}
	k := &keyboard{in: f, saved: *saved, wake: wake, asleep: asleep}
	now := *saved
	now.Lflag &^= unix.ICANON | unix.ECHO
	now.Cc[unix.VMIN], now.Cc[unix.VTIME] = 1, 0
	now.Cc[unix.VSUSP], now.Cc[unix.VQUIT] = 0, 0 // no key
	if err := unix.IoctlSetTermios(command.FD(f), unix.TCSETS, &now); err != nil {
		return nil, errors.Join(fmt.Errorf("take the terminal: %w", err), wake.Close(), asleep.Close())
	}
	return k, nil
}

// follow calls press with each key until close, from a separate goroutine.
func (k *keyboard) follow(press func(key string)) {
	k.joined.Go(func() {
		buf := make([]byte, 64)
		for k.wait() {
			n, err := unix.Read(command.FD(k.in), buf)
			if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
				continue
			}
			if err != nil || n == 0 {
				return // the terminal is gone, of which a signal tells
			}
			for _, key := range keysIn(string(buf[:n])) {
				press(key)
			}
		}
	})
}

// wait returns true when there is a key, and false when there will be none.
func (k *keyboard) wait() bool {
	for {
		at := []unix.PollFd{{Fd: int32(command.FD(k.in)), Events: unix.POLLIN}, {Fd: int32(command.FD(k.asleep)), Events: unix.POLLIN}} //nolint:gosec // descriptors
		_, err := unix.Poll(at, -1)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil || at[1].Revents != 0 || at[0].Revents&unix.POLLIN == 0:
			return false
		default:
			return true
		}
	}
}

// close gives the terminal back as it was.
func (k *keyboard) close() error {
	err := k.wake.Close()
	k.joined.Wait()
	err = errors.Join(err, k.asleep.Close())
	if rerr := unix.IoctlSetTermios(command.FD(k.in), unix.TCSETS, &k.saved); rerr != nil {
		err = errors.Join(err, fmt.Errorf("give the terminal back: %w", rerr))
	}
	return err
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
