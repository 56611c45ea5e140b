// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/kerf-gpu/kerf/internal/present"
)

// Screen tells the size of the terminal that the output goes to; ok is false when it goes elsewhere.
type Screen func() (width, height int, ok bool)

// screenOf asks for the size anew each time, since a window changes.
func screenOf(f *os.File) Screen {
	return func() (int, int, bool) {
		fd := int(f.Fd())
		if !term.IsTerminal(fd) {
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

// Draw puts text on the screen from its upper left, cut to its height. Lines are overwritten and not cleared
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

// RenderCluster renders a picture of a cluster: as a document for scripts, or by table for people.
func (a *App) RenderCluster(output string, p present.Cluster, table func(present.Cluster, present.Options) string) ([]byte, error) {
	switch output {
	case "json":
		return present.JSON(p, true)
	case "yaml":
		return present.YAML(p)
	}
	return []byte(table(p, present.Options{Color: a.Colors(), Wide: output == "wide"})), nil
}

// FD is the descriptor of a file.
func FD(f *os.File) int { return int(f.Fd()) }
