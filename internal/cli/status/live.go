// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"

	tea "charm.land/bubbletea/v2"
	"golang.org/x/term"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/present"
)

// event is what the screen of kerf top shows next: newer samples, or only why there are none.
type event struct {
	nodes []present.TopNode
	notes []string
}

// ended says that no more events come.
type ended struct{ err error }

// terminal gives a screen the keys, the size and the samples. All decisions are the screen's.
type terminal struct {
	screen present.TopScreen
	// failed is why no more events come.
	failed error
}

// Init waits for events.
func (t terminal) Init() tea.Cmd { return nil }

// Update is the terminal after an event.
func (t terminal) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch m := msg.(type) {
	case tea.WindowSizeMsg:
		t.screen = t.screen.Resize(m.Width, m.Height)
	case tea.KeyPressMsg:
		next, quit := t.screen.Key(m.String())
		if t.screen = next; quit {
			return t, tea.Quit
		}
	case event:
		if m.nodes == nil {
			t.screen = t.screen.WithNotes(m.notes...)
			break
		}
		t.screen = t.screen.See(m.nodes, m.notes)
	case ended:
		t.failed = m.err
		return t, tea.Quit
	}
	return t, nil
}

// View is the frame, on the terminal's other screen.
func (t terminal) View() tea.View {
	v := tea.NewView(t.screen.Frame())
	v.AltScreen = true
	return v
}

// live shows the screen of kerf top until the user or ctx ends it, or until feed fails. feed calls show with what there
// is to see until its context ends. The terminal is restored in every case.
func live(ctx context.Context, a *command.App, view present.TopView, feed func(ctx context.Context,
	show func(event)) error) error {
	width, height, _ := a.Screen()
	p := tea.NewProgram(terminal{screen: present.NewTopScreen(view, width, height, a.Colors())},
		tea.WithInput(keyboard(a.In)), tea.WithOutput(a.Out), tea.WithEnvironment(a.Environ()),
		tea.WithoutSignalHandler())
	// The program gets no context: with one, it would close the keyboard while it still reads from it. The
	// feed ends with ctx, and the end of the feed ends the program in order.
	feeding, stop := context.WithCancel(ctx)
	var fed sync.WaitGroup
	fed.Go(func() {
		p.Send(ended{feed(feeding, func(e event) { p.Send(e) })}) // does nothing once the program ended
	})
	last, err := p.Run()
	stop()
	fed.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("show the terminal view: %w", err)
	}
	if t, ok := last.(terminal); ok {
		return t.failed
	}
	return nil
}

// keyboard is the terminal that in is, or nil. Without a keyboard, a signal ends the view.
func keyboard(in io.Reader) io.Reader {
	if f, ok := in.(*os.File); ok && term.IsTerminal(command.FD(f)) {
		return f
	}
	return nil
}
