// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package present

import "strings"

// supported is the answer of a backend that works.
const supported = "supported"

// works names the listed backends that work on the GPU.
func (g GPU) works() string {
	var out []string
	for _, b := range g.Backends {
		if b.Listed && b.Answer == supported {
			out = append(out, b.Name)
		}
	}
	return strings.Join(out, ",")
}

// whyNot says of each listed backend that does not work why.
func (g GPU) whyNot() []string {
	var out []string
	for _, b := range g.Backends {
		if b.Listed && b.Answer != supported {
			out = append(out, b.String())
		}
	}
	return out
}

// String is what is to be known of the backend, in a line.
func (b Backend) String() string {
	s := b.Name + " " + b.Answer
	if !b.Listed {
		s += ", not listed by the pool"
	}
	if b.Reason != "" {
		s += ": " + b.Reason
	}
	if b.Remedy != "" {
		s += "; " + b.Remedy
	}
	return s
}

// held is a grant's level, with the backend where the level does not name it.
func (g Grant) held() string {
	if g.Backend == "" || g.Backend == "none" || g.Backend == g.Level {
		return g.Level
	}
	return g.Level + " (" + g.Backend + ")"
}
