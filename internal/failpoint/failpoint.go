// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package failpoint makes chosen points of the program fail on purpose, for crash and error tests.
//
// A point is a name in the code: Eval("record.after-rename"). What happens there is said by a spec, such as
//
//	record.after-rename=exit;grant.write=2*off->1*error(disk full)->sleep(50ms)
//
// Points are separated by ";". The terms of a point are tried in order, separated by "->". A term with "N*" in front
// acts N times before the next one takes over. A term without it acts for ever, so it comes last. After the last
// counted term the point is off.
//
//	off           nothing happens
//	error(TEXT)   Eval returns an error with that text, which holds no ")"
//	sleep(TIME)   Eval returns after TIME, as Go writes it (50ms)
//	exit          the process ends here; how is decided by the one who parsed the spec
//
// A *Set is a value that is handed down. A nil Set is off and costs one comparison. There is no global
// registry, nothing is read from the environment, and this package never ends a process by itself.
package failpoint

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// ErrInjected is wrapped by every error of a failpoint, so that a test can recognize it. Such errors are
// sharing.ErrUnavailable too, because they simulate such failures.
var ErrInjected = errors.New("injected")

// Actions are what a Set cannot do by itself.
type Actions struct {
	// Exit ends the process at the named point. It should not return; if it does, Eval returns an error.
	// Crash tests send SIGKILL to themselves here, so that no deferred function runs.
	Exit func(point string)
	// Sleep waits for d; nil means time.Sleep.
	Sleep func(d time.Duration)
}

// Set is the points that are activated. It is safe for concurrent use.
type Set struct {
	do Actions

	mu     sync.Mutex
	points map[string][]term
}

// term is one action and how often it still acts.
type term struct {
	act   action
	left  uint64 // meaningful when counted; a term at 0 is spent
	count bool
	text  string
	pause time.Duration
}

type action uint8

const (
	actOff action = iota
	actExit
	actError
	actSleep
)

// Eval does what the spec says for the point name; a name that the spec does not have is off. It returns
// an error only if the point says error, or says exit and the injected Exit came back.
func (s *Set) Eval(name string) error {
	if s == nil {
		return nil
	}
	t := s.next(name)
	switch t.act {
	case actError:
		return fmt.Errorf("failpoint %q: %s: %w (%w)", name, t.text, ErrInjected, sharing.ErrUnavailable)
	case actSleep:
		s.do.Sleep(t.pause)
	case actExit:
		s.do.Exit(name)
		return fmt.Errorf("failpoint %q: exit returned: %w (%w)", name, ErrInjected, sharing.ErrUnavailable)
	case actOff:
	}
	return nil
}

// next takes one turn of the point's first term that is not spent.
func (s *Set) next(name string) term {
	s.mu.Lock()
	defer s.mu.Unlock()
	terms := s.points[name]
	for i := range terms {
		t := &terms[i]
		switch {
		case !t.count:
			return *t
		case t.left > 0:
			t.left--
			return *t
		}
	}
	return term{act: actOff}
}

// Check rejects a Set that names a point which the program does not have. Else a misspelt spec would count as a test
// that passed. All points of the program are known.
func (s *Set) Check(known ...string) error {
	if s == nil {
		return nil
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(s.points)) {
		if !slices.Contains(known, name) {
			errs = append(errs, sharing.Invalid("failpoint", name, fmt.Sprintf("write one of %q", known),
				"is not a point of this program"))
		}
	}
	return errors.Join(errs...)
}
