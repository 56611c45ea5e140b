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

// Mistake is one thing that is wrong in a document.
type Mistake struct {
	// File is the name of the file; empty where the document is one text.
	File string
	// Line is where it stands, from 1; 0 where there is no text or the whole text is meant.
	Line int
	// What names the field by its path, such as spec.profiles[2].memory.
	What *sharing.FieldError
}

// Error gives file, line and mistake.
func (m Mistake) Error() string {
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
func (m Mistake) Unwrap() error { return m.What }

// Mistakes is every mistake of a document, by file and line.
type Mistakes []Mistake

// Error gives one mistake per line.
func (m Mistakes) Error() string { return strings.Join(m.Lines(), "\n") }

// Lines gives each mistake as a text.
func (m Mistakes) Lines() []string {
	out := make([]string, 0, len(m))
	for _, one := range m {
		out = append(out, one.Error())
	}
	return out
}

// Unwrap returns the mistakes.
func (m Mistakes) Unwrap() []error {
	out := make([]error, 0, len(m))
	for _, one := range m {
		out = append(out, one)
	}
	return out
}

const (
	// maxMistakes bounds what a hostile config can make the log say. Nothing is checked after it.
	maxMistakes = 100
	// maxEntries bounds each list and mapping of a config, so that checks that compare entries take little time.
	maxEntries = 1000
)

// full reports whether there are more mistakes than are told.
func (m Mistakes) full() bool { return len(m) > maxMistakes }

// byLine sorts the mistakes of one file.
func (m Mistakes) byLine() Mistakes {
	slices.SortStableFunc(m, func(a, b Mistake) int { return cmp.Compare(a.Line, b.Line) })
	return m
}

// bounded cuts the last ones off where there are too many.
func (m Mistakes) bounded() Mistakes {
	if m.full() {
		more := sharing.Invalid(wholeDocument, "", "correct the errors above first", "has more errors")
		m = append(m[:maxMistakes:maxMistakes], Mistake{What: more})
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

// Unmatched are the choices of GPUs in the pool's rules and MIG layouts that none of the GPUs answers to, each with its path
// below the pool and its value: "gpus[0].index: 9". The products of a
// layout do not count: documents list those that a site does not have.
func (p Pool) Unmatched(gpus []sharing.GPU) []string {
	var out []string
	none := func(path string, value any, fits func(sharing.GPU) bool) {
		if !slices.ContainsFunc(gpus, fits) {
			out = append(out, fmt.Sprintf("%s: %v", path, value))
		}
	}
	for i, r := range p.GPUs {
		here := at("gpus", i)
		for _, glob := range r.Models {
			none(here+".model", glob, func(g sharing.GPU) bool { return sharing.MatchModels([]string{glob}, g.Model) })
		}
		for _, index := range r.Indexes {
			none(here+".index", index, func(g sharing.GPU) bool { return g.Index == index })
		}
		for _, id := range r.UUIDs {
			none(here+".uuid", id, func(g sharing.GPU) bool { return g.UUID == id })
		}
	}
	for i, l := range p.MIG {
		for _, index := range l.GPUs {
			none(at("mig", i)+".gpus", index, func(g sharing.GPU) bool { return g.Index == index })
		}
	}
	return out
}
