// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

// Error is one thing that is wrong in a config.
type Error struct {
	// File is the name of the file; empty if the config is one text.
	File string
	// Line is where it stands, from 1; 0 where there is no text or the whole text is meant.
	Line int
	// What names the field by its path, such as spec.profiles[2].memory.
	What *sharing.FieldError
}

// Error gives file, line and problem.
func (m Error) Error() string {
	where := ""
	if m.File != "" {
		where = m.File + ": "
	}
	if m.Line != 0 {
		where += fmt.Sprintf("line %d: ", m.Line)
	}
	return where + m.What.Error()
}

// Unwrap returns the FieldError, which is ErrInvalid.
func (m Error) Unwrap() error { return m.What }

// Errors is every error of a config, by file and line.
type Errors []Error

// Error gives one error per line.
func (m Errors) Error() string { return strings.Join(m.Lines(), "\n") }

// Lines gives each error as a text.
func (m Errors) Lines() []string {
	out := make([]string, 0, len(m))
	for _, one := range m {
		out = append(out, one.Error())
	}
	return out
}

// Unwrap returns the errors.
func (m Errors) Unwrap() []error {
	out := make([]error, 0, len(m))
	for _, one := range m {
		out = append(out, one)
	}
	return out
}

const (
	// maxErrors bounds what a hostile config can make the log say. Nothing is checked after it.
	maxErrors = 100
	// maxEntries bounds each list and mapping of a config, so that checks that compare entries take little time.
	maxEntries = 1000
)

// full reports whether there are more errors than are reported.
func (m Errors) full() bool { return len(m) > maxErrors }

// byLine sorts the errors of one file.
func (m Errors) byLine() Errors {
	slices.SortStableFunc(m, func(a, b Error) int { return cmp.Compare(a.Line, b.Line) })
	return m
}

// bounded removes the last ones if there are too many.
func (m Errors) bounded() Errors {
	if m.full() {
		more := sharing.Invalid(wholeConfig, "", "correct the errors above first", "has more errors")
		m = append(m[:maxErrors:maxErrors], Error{What: more})
	}
	return m
}

// mostWords is among how many words one that is meant is looked for. To compare with each takes time.
const mostWords = 200

// meant is the beginning of a remedy: which of the words may have been meant. It is empty where none is near.
func meant(s string, among []string) string {
	if len(among) > mostWords {
		return ""
	}
	if near := sharing.Nearest(s, among); near != "" {
		return "did you mean " + near + "? "
	}
	return ""
}
