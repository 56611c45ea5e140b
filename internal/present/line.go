// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package present

import (
	"strings"
	"unicode/utf8"
)

// style is an SGR parameter list; empty is the terminal's own.
type style string

const (
	plainStyle style = ""
	bold       style = "1"
	dim        style = "2"
	red        style = "31"
	green      style = "32"
	yellow     style = "33"
)

// span is a stretch of text in one style. Its characters are one cell wide each.
type span struct {
	style style
	text  string
}

// line is one line of a screen.
type line []span

func text(s string) line { return line{{plainStyle, s}} }

func (l line) add(st style, s string) line { return append(l, span{st, s}) }

// width is the number of cells.
func (l line) width() int {
	n := 0
	for _, s := range l {
		n += utf8.RuneCountInString(s.text)
	}
	return n
}

// plain is the text without styles.
func (l line) plain() string { return l.render(0, false) }

// render writes the line in at most width cells (0: no limit); what does not fit ends in an ellipsis.
func (l line) render(width int, color bool) string {
	var b strings.Builder
	cut := width > 0 && l.width() > width
	left := width - 1 // the ellipsis needs a cell
	for _, s := range l {
		t := s.text
		if cut {
			t = head(t, left)
			left -= utf8.RuneCountInString(t)
		}
		if t == "" {
			continue
		}
		if color && s.style != plainStyle {
			b.WriteString("\x1b[" + string(s.style) + "m" + t + "\x1b[0m")
		} else {
			b.WriteString(t)
		}
	}
	if cut {
		b.WriteString("…")
	}
	if color {
		return b.String()
	}
	return strings.TrimRight(b.String(), " ")
}

// head is the first n characters of s.
func head(s string, n int) string {
	for i := range s {
		if n <= 0 {
			return s[:i]
		}
		n--
	}
	return s
}

// pad fills s with blanks to n cells.
func pad(s string, n int) string {
	if d := n - utf8.RuneCountInString(s); d > 0 {
		return s + strings.Repeat(" ", d)
	}
	return s
}
