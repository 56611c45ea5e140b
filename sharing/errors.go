// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// The error vocabulary. Every error that crosses a package boundary wraps one of these, so that callers
// decide with errors.Is and never by text.
var (
	// ErrNotFound: the named thing does not exist.
	ErrNotFound = errors.New("not found")
	// ErrConflict: another user has the name or the share.
	ErrConflict = errors.New("conflict")
	// ErrExhausted: the request is well formed, and there is no room for it now.
	ErrExhausted = errors.New("exhausted")
	// ErrInvalid: the input is wrong and will stay wrong until it is changed.
	ErrInvalid = errors.New("invalid")
	// ErrUnsupported: this machine cannot do it (driver, kernel, hardware).
	ErrUnsupported = errors.New("not supported")
	// ErrUnavailable: it cannot be done now; trying again later may work.
	ErrUnavailable = errors.New("unavailable")
	// ErrStale: what the caller refers to has changed since it looked (another boot, another cgroup).
	ErrStale = errors.New("stale")
	// ErrLost: the hardware is gone (a GPU that fell off the bus).
	ErrLost = errors.New("lost")
	// ErrDenied: the caller may not do this.
	ErrDenied = errors.New("denied")
)

// vocabulary are all of them.
func vocabulary() []error {
	return []error{ErrNotFound, ErrConflict, ErrExhausted, ErrInvalid, ErrUnsupported, ErrUnavailable, ErrStale,
		ErrLost, ErrDenied}
}

// Plain is an error's text for people, in one line. It leaves out the sentinel errors, which callers test for: the text
// before has said what is wrong.
func Plain(err error) string {
	var out []string
	for line := range strings.Lines(err.Error()) {
		line = strings.TrimSpace(line)
		for again := true; again; {
			again = false
			for _, word := range vocabulary() {
				if rest, ok := strings.CutSuffix(line, ": "+word.Error()); ok {
					line, again = rest, true
				}
			}
		}
		out = append(out, line)
	}
	return strings.Join(out, "; ")
}

// FieldError says which input field is wrong, what was given, why it cannot be used, and what to write
// instead. It is ErrInvalid.
type FieldError struct {
	// Field is the name that the user knows: a flag (--memory), a resource (kerf.dev/gpu-percent), or a path in a
	// config (profiles[2].memory).
	Field string
	// Value is what was given, as text; empty when nothing was.
	Value string
	// Problem says what is wrong, as a clause: "is not a size".
	Problem string
	// Remedy says what to do, as an imperative: "write a number with a unit, such as 10GiB".
	Remedy string
}

// Error renders field, value, problem and remedy in one line. The value is quoted, so that control characters of an
// input never reach a terminal or a log. A long value is shortened.
func (e *FieldError) Error() string {
	s := e.Field
	if e.Value != "" {
		s += " " + strconv.Quote(shorten(e.Value))
	}
	s += " " + e.Problem
	if e.Remedy != "" {
		s += "; " + e.Remedy
	}
	return s
}

// Unwrap makes every FieldError an ErrInvalid.
func (e *FieldError) Unwrap() error { return ErrInvalid }

// Invalid builds a FieldError; problem is a format for args.
func Invalid(field, value, remedy, problem string, args ...any) *FieldError {
	return &FieldError{Field: field, Value: value, Remedy: remedy, Problem: fmt.Sprintf(problem, args...)}
}

// shorten limits the length of a value in an error, so that a huge input does not make a huge line.
func shorten(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return s[:most] + "..."
}
