// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"io"
	"strings"

	"github.com/kerf-gpu/kerf/internal/cli/command"
)

// progress shows on a terminal how much of the work is done. Its zero value shows nothing.
type progress struct {
	out    io.Writer
	screen command.Screen
	runs   int
	// run counts from 0, name says which it is, and shown is the percent that the terminal shows.
	run   int
	name  string
	shown int
}

// progressOn is for that many runs. It shows itself only where people look: on a terminal, and not while the output
// is for a program at the other end of a pipe.
func progressOn(a *command.App, runs int, output string) *progress {
	if a.ErrScreen == nil {
		return &progress{}
	}
	_, _, terminal := a.ErrScreen()
	if output != "table" && terminal {
		_, _, terminal = a.Screen()
	}
	if !terminal {
		return &progress{}
	}
	return &progress{out: a.ErrOut, screen: a.ErrScreen, runs: runs, shown: -1}
}

// next begins a run.
func (p *progress) next(policy string, seed int64) func(float64) {
	p.name = fmt.Sprintf("%s, seed %d", policy, seed)
	if p.out == nil {
		return nil
	}
	return p.show
}

// show is told which part of the run is done, and writes a line when a percent of all runs was gained.
func (p *progress) show(part float64) {
	percent := int((float64(p.run) + min(1, part)) / float64(p.runs) * 100)
	if percent == p.shown {
		return
	}
	p.shown = percent
	width, _, _ := p.screen()
	const bar = 30
	line := fmt.Sprintf("[%-*s] %3d %%  %s", bar, strings.Repeat("#", percent*bar/100), percent, p.name)
	// A line that is wrapped could not be taken back.
	_, _ = fmt.Fprintf(p.out, "\r%s\x1b[K", line[:min(len(line), max(0, width-1))])
}

// done ends a run.
func (p *progress) done() { p.run++ }

// clear takes the line back, so that what follows stands alone.
func (p *progress) clear() {
	if p.out != nil {
		_, _ = fmt.Fprint(p.out, "\r\x1b[K")
	}
}
