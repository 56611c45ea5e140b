// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	nodev1 "github.com/kerf-gpu/kerf/api/node/v1"
	"github.com/kerf-gpu/kerf/internal/nodeclient"
	"github.com/kerf-gpu/kerf/internal/present"
)

// The terminal's sequences: the other screen without a cursor, and back.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
)

// statusWatch shows every picture until it is interrupted, over restarts of the agent. On a terminal it
// draws in place; elsewhere it prints one document after the other.
func (a *app) statusWatch(parent context.Context, o *statusOptions) error {
	return interruptible(parent, func(ctx context.Context) error {
		_, _, terminal := a.screen()
		see, away := a.streamTo(o)
		if terminal && o.output != "json" && o.output != "yaml" {
			_, _ = fmt.Fprint(a.out, enterScreen)
			defer func() { _, _ = fmt.Fprint(a.out, leaveScreen) }()
			see, away = a.drawTo(o)
		}
		err := nodeclient.Follow(ctx, a.dir, watchInterval, see, away)
		if _, ok := errors.AsType[*interruptedError](err); ok {
			return nil // ctrl-C is how a watch ends
		}
		return fail(err)
	})
}

// streamTo prints pictures one after the other: JSON one in a line, YAML as documents of a stream, text with
// an empty line between. An agent that is away is said once on stderr.
func (a *app) streamTo(o *statusOptions) (see func(*nodev1.GetNodeResponse) error, away func(error) error) {
	first, said := true, ""
	see = func(p *nodev1.GetNodeResponse) error {
		said = ""
		var text []byte
		var err error
		switch o.output {
		case "json":
			text, err = present.JSON(present.FromNode(p), false)
		case "yaml":
			text, err = present.YAML(present.FromNode(p))
			text = append([]byte("---\n"), text...)
		default:
			if text, err = a.render(o.output, p); !first {
				text = append([]byte("\n"), text...)
			}
		}
		if err != nil {
			return err
		}
		first = false
		_, err = a.out.Write(text)
		return err
	}
	away = func(err error) error {
		if hopeless(err) {
			return err
		}
		if err.Error() != said {
			said = err.Error()
			_, _ = fmt.Fprintf(a.errOut, "kerf status: agent away: %s\n", said)
		}
		return nil
	}
	return see, away
}

// drawTo draws pictures in place. While the agent is away the last picture stays, with a line above that
// says so.
func (a *app) drawTo(o *statusOptions) (see func(*nodev1.GetNodeResponse) error, away func(error) error) {
	var last []byte
	see = func(p *nodev1.GetNodeResponse) error {
		text, err := a.render(o.output, p)
		if err != nil {
			return err
		}
		last = text
		return a.draw(text)
	}
	away = func(err error) error {
		if hopeless(err) {
			return err
		}
		first := []rune("agent away: " + err.Error())
		if width, _, _ := a.screen(); len(first) > width {
			first = first[:width]
		}
		return a.draw(append([]byte(string(first)+"\n\n"), last...))
	}
	return see, away
}

// draw puts text on the screen from its upper left, cut to its height. Lines are overwritten and not cleared
// first, which would flicker.
func (a *app) draw(text []byte) error {
	_, height, _ := a.screen()
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
	_, err := a.out.Write(b.Bytes())
	return err
}
