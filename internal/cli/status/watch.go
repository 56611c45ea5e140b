// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"errors"
	"fmt"

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
		err := nodeclient.WatchReconnecting(ctx, a.Dir, watchInterval, see, away)
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
