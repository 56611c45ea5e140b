// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package failpoint

import (
	"strconv"
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

const (
	remedyPoint = "write name=action, several separated by \";\""
	remedyTerm  = "write off, exit, error(text) or sleep(50ms), with 2* in front to count, several joined by \"->\""
)

// Parse reads a spec. It is strict: every problem is a *sharing.FieldError, and then there is no Set. An empty spec
// gives a nil Set, which is off.
func Parse(spec string, do Actions) (*Set, error) {
	if strings.TrimSpace(spec) == "" {
		return nil, nil
	}
	if do.Sleep == nil {
		do.Sleep = time.Sleep
	}
	s := &Set{do: do, points: map[string][]term{}}
	for rest, more := spec, true; more; {
		var point string
		point, rest, more = splitAt(rest, ";")
		name, text, found := strings.Cut(point, "=")
		name = strings.TrimSpace(name)
		switch {
		case !found:
			return nil, sharing.Invalid("failpoint", point, remedyPoint, "has no action")
		case !validName(name):
			return nil, sharing.Invalid("failpoint", name, "use a-z, 0-9, \".\", \"/\", \"_\" and \"-\"",
				"is not a point's name")
		case s.points[name] != nil:
			return nil, sharing.Invalid("failpoint", name, "name each point once", "is given twice")
		}
		terms, err := parseTerms(name, text)
		if err != nil {
			return nil, err
		}
		for _, t := range terms {
			if t.act == actExit && do.Exit == nil {
				return nil, sharing.Invalid("failpoint "+name, "exit", "use error(text)",
					"cannot be done by this program")
			}
		}
		s.points[name] = terms
	}
	return s, nil
}

func parseTerms(name, text string) ([]term, error) {
	var terms []term
	for rest, more := text, true; more; {
		var one string
		one, rest, more = splitAt(rest, "->")
		t, err := parseTerm(name, strings.TrimSpace(one))
		if err != nil {
			return nil, err
		}
		if !t.count && more {
			return nil, sharing.Invalid("failpoint "+name, one, "put a count such as 2* in front of it",
				"acts for ever, so nothing after it is reached")
		}
		terms = append(terms, t)
	}
	return terms, nil
}

func parseTerm(name, text string) (term, error) {
	bad := func(problem string) (term, error) {
		return term{}, sharing.Invalid("failpoint "+name, text, remedyTerm, "%s", problem)
	}
	var t term
	act := text
	if n, rest, found := strings.Cut(text, "*"); found && !strings.Contains(n, "(") {
		left, err := strconv.ParseUint(n, 10, 32)
		if err != nil || left == 0 {
			return bad("has a count that is not a number from 1")
		}
		t.count, t.left, act = true, left, rest
	}
	verb, arg, hasArg := strings.Cut(act, "(")
	if hasArg {
		var closed bool
		if arg, closed = strings.CutSuffix(arg, ")"); !closed || strings.Contains(arg, ")") {
			return bad("has parentheses that do not match")
		}
	}
	switch {
	case verb == "off" && !hasArg:
		t.act = actOff
	case verb == "exit" && !hasArg:
		t.act = actExit
	case verb == "error" && arg != "":
		t.act, t.text = actError, arg
	case verb == "sleep" && hasArg:
		d, err := time.ParseDuration(arg)
		if err != nil || d <= 0 {
			return bad("has no time to sleep")
		}
		t.act, t.pause = actSleep, d
	default:
		return bad("is not an action")
	}
	return t, nil
}

// splitAt splits at the first separator that is not inside parentheses.
func splitAt(s, sep string) (before, after string, found bool) {
	inside := false
	for i := range len(s) {
		switch {
		case s[i] == '(':
			inside = true
		case s[i] == ')':
			inside = false
		case !inside && strings.HasPrefix(s[i:], sep):
			return s[:i], s[i+len(sep):], true
		}
	}
	return s, "", false
}

func validName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && !strings.ContainsRune("./_-", rune(c)) {
			return false
		}
	}
	return s != ""
}
