// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package present

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	telemetryapi "github.com/kerf-gpu/kerf/api/telemetry/v1alpha1"
)

// TopNode is what is measured on one node.
type TopNode struct {
	Name   string
	Sample *telemetryapi.Sample
}

// TopScreen is the live form of kerf top: a list of nodes, GPUs, grants or pods in which the user moves. It is a value.
// Its methods return the next screen, and share no state with the screen before.
type TopScreen struct {
	view  TopView
	color bool
	// width and height are the terminal's, in cells.
	width, height int

	nodes []TopNode
	// notes say what is not known.
	notes []string

	// at is the node or GPU that the user opened.
	at topScope
	// filter is what all lines of the list contain; typing is true while the user writes it.
	filter       string
	typing, help bool

	// list are the lines that at and filter leave, in the order of view.
	list []topLine
	// cursor is the selected line, first the uppermost line on the screen.
	cursor, first int
}

// topScope is a part of the cluster: all of it, one node, or one GPU.
type topScope struct{ node, gpu string }

// NewTopScreen is a screen of this size without data. By of the view is "node", or one of TopRows.
func NewTopScreen(view TopView, width, height int, color bool) TopScreen {
	return TopScreen{view: view, color: color}.Resize(width, height)
}

// Resize fits the screen to a terminal of this many cells.
func (s TopScreen) Resize(width, height int) TopScreen {
	s.width, s.height = max(1, width), max(1, height)
	return s.scrolled()
}

// See shows newer samples. The selection stays on its node, GPU or grant. notes say what is not known.
func (s TopScreen) See(nodes []TopNode, notes []string) TopScreen {
	s.nodes, s.notes = nodes, notes
	return s.listed(s.selected())
}

// WithNotes shows the last samples with other notes.
func (s TopScreen) WithNotes(notes ...string) TopScreen {
	s.notes = notes
	return s.scrolled()
}

// Key is the screen after a key, and whether the key ends the command. Keys have the names of bubbletea: "up", "a",
// "pgdown", "ctrl+c". Other keys change nothing.
func (s TopScreen) Key(key string) (next TopScreen, quit bool) {
	switch {
	case key == "ctrl+c":
		return s, true
	case s.typing:
		return s.typed(key), false
	case s.help:
		s.help = false
		return s, key == "q"
	case key == "q":
		return s, true
	}
	if next, ok := s.moved(key); ok {
		return next, false
	}
	return s.changed(key), false
}

// typed takes in one key of the filter.
func (s TopScreen) typed(key string) TopScreen {
	switch key {
	case "enter":
		s.typing = false
		return s
	case "esc":
		s.typing, s.filter = false, ""
	case "backspace":
		_, n := utf8.DecodeLastRuneInString(s.filter)
		s.filter = s.filter[:len(s.filter)-n]
	case "space":
		s.filter += " "
	default:
		if r, n := utf8.DecodeRuneInString(key); n < len(key) || !unicode.IsPrint(r) {
			return s
		}
		s.filter += key
	}
	return s.listed(s.selected())
}

// moved is the screen with another line selected; ok is false if the key is none that moves.
func (s TopScreen) moved(key string) (next TopScreen, ok bool) {
	page := max(1, s.rows())
	switch key {
	case "up", "k":
		s.cursor--
	case "down", "j":
		s.cursor++
	case "pgup", "ctrl+b":
		s.cursor, s.first = s.cursor-page, s.first-page
	case "pgdown", "ctrl+f", "space":
		s.cursor, s.first = s.cursor+page, s.first+page
	case "home", "g":
		s.cursor = 0
	case "end", "G":
		s.cursor = len(s.list) - 1
	default:
		return s, false
	}
	return s.scrolled(), true
}

// changed is the screen after a key that changes what is listed.
func (s TopScreen) changed(key string) TopScreen {
	selected := "" // another order or list begins at its first line
	switch key {
	case "?":
		s.help = true
		return s
	case "/":
		s.typing = true
		return s
	case "enter", "right", "l":
		return s.opened()
	case "esc", "left", "h", "backspace":
		return s.closed()
	case "<":
		s.view.Order = step(TopOrders(), s.view.Order, -1)
	case ">":
		s.view.Order = step(TopOrders(), s.view.Order, 1)
	case "r":
		s.view.Reverse = !s.view.Reverse
	case "v":
		s.view.By = step(s.views(), s.view.By, 1)
	case "w":
		s.view.Wide, selected = !s.view.Wide, s.selected()
	default:
		return s
	}
	return s.listed(selected)
}

// views are the lists that the user can choose from. One node is no list.
func (s TopScreen) views() []string {
	switch {
	case s.at.gpu != "":
		return []string{"owner", "pod"}
	case s.at.node != "" || len(s.nodes) < 2:
		return []string{"gpu", "owner", "pod"}
	}
	return []string{"node", "gpu", "owner", "pod"}
}

// opened goes from a node to its GPUs, and from a GPU to its grants.
func (s TopScreen) opened() TopScreen {
	if len(s.list) == 0 || s.list[s.cursor].opens == (topScope{}) {
		return s
	}
	s.at, s.filter = s.list[s.cursor].opens, ""
	s.view.By = "owner"
	if s.at.gpu == "" {
		s.view.By = "gpu"
	}
	return s.listed("")
}

// closed clears the filter, or goes back to the list from which the user came, with the same line selected.
func (s TopScreen) closed() TopScreen {
	switch from := s.at; {
	case s.filter != "":
		s.filter = ""
		return s.listed(s.selected())
	case from.gpu != "":
		s.at, s.view.By = topScope{node: from.node}, "gpu"
		if len(s.nodes) < 2 {
			s.at = topScope{}
		}
		return s.listed("gpu " + from.node + " " + from.gpu)
	case from.node != "":
		s.at, s.view.By = topScope{}, "node"
		return s.listed("node " + from.node)
	}
	return s
}

// selected is the key of the selected line; empty if there is none.
func (s TopScreen) selected() string {
	if s.cursor < len(s.list) {
		return s.list[s.cursor].key
	}
	return ""
}

// listed makes the list again and selects the line with this key. Without one, the selection stays where it is.
func (s TopScreen) listed(key string) TopScreen {
	s.list = s.lines()
	if i := slices.IndexFunc(s.list, func(l topLine) bool { return l.key == key }); i >= 0 {
		s.cursor = i
	} else if key == "" {
		s.cursor = 0
	}
	return s.scrolled()
}

// scrolled keeps the cursor on a line, and that line on the screen.
func (s TopScreen) scrolled() TopScreen {
	s.cursor = max(0, min(s.cursor, len(s.list)-1))
	rows := max(1, s.rows())
	s.first = max(s.cursor-rows+1, min(s.first, s.cursor))
	s.first = max(0, min(s.first, len(s.list)-rows))
	return s
}

// has is true if each word of the filter is in the line, in capital or small letters.
func (l topLine) has(filter string) bool {
	text := strings.ToLower(l.node + " " + strings.Join(l.cells, " "))
	for word := range strings.FieldsSeq(strings.ToLower(filter)) {
		if !strings.Contains(text, word) {
			return false
		}
	}
	return true
}
