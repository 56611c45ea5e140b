// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package choice decides which of the backends that are listed for a GPU, or for several, enforces a share. It uses the
// probe results of each of them on each GPU.
//
// It promises that the backend that it returns is listed for every named GPU and works there, and that no stronger one
// does. It reports every stronger one with the reason. It is a pure function and probes nothing.
package choice

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

// Answer is what a probe found.
type Answer uint8

// The answers. The last two are facts; the first is none.
const (
	// NoAnswer: the probe could not be made. Never taken for a yes, and asked again.
	NoAnswer Answer = iota
	// Supported: tried, and it works.
	Supported
	// NotSupported: this machine cannot.
	NotSupported
)

// String returns the answer as status shows it.
func (a Answer) String() string {
	switch a {
	case Supported:
		return "supported"
	case NotSupported:
		return "not supported"
	case NoAnswer:
	}
	return "could not tell"
}

// Support is a probe's answer for people.
type Support struct {
	Answer Answer
	// Reason says why, as a clause; of what is supported it says what is to be known of it, and is empty mostly.
	Reason string
	// Remedy says what to do about it, as an imperative; empty when supported or when nothing helps.
	Remedy string
}

// OK reports whether the backend may be used.
func (s Support) OK() bool { return s.Answer == Supported }

// String is reason and remedy.
func (s Support) String() string {
	if s.Remedy == "" {
		return s.Reason
	}
	return s.Reason + "; " + s.Remedy
}

// Report has each backend's answer for shares of one GPU. A backend without an entry is one that the agent does
// not have.
type Report map[sharing.Backend]Support

// Unprobed is the report of a GPU that was not probed for that reason: every backend is unknown.
func Unprobed(reason string) Report {
	r := Report{}
	for _, b := range sharing.Backends() {
		r[b] = Support{Answer: NoAnswer, Reason: reason}
	}
	return r
}

// NoShares is the report of a GPU of which no backend can enforce a share, for that reason.
func NoShares(reason string) Report {
	r := Report{}
	for _, b := range sharing.Backends() {
		r[b] = Support{Answer: NotSupported, Reason: reason}
	}
	return r
}

// Of is the answer of one backend.
func (r Report) Of(b sharing.Backend) Support {
	if s, ok := r[b]; ok {
		return s
	}
	return Support{Answer: NotSupported, Reason: "this agent does not have it"}
}

// But is the report with other answers of some backends. A backend that does not work in general works in no case.
func (r Report) But(other map[sharing.Backend]Support) Report {
	if len(other) == 0 {
		return r
	}
	out := maps.Clone(r)
	for b, s := range other {
		if out[b].OK() {
			out[b] = s
		}
	}
	return out
}

// Undecided reports whether some backend is unknown.
func (r Report) Undecided() bool {
	for _, s := range r {
		if s.Answer == NoAnswer {
			return true
		}
	}
	return false
}

// On is one GPU of a placement: what may hold shares of it, and what can.
type On struct {
	// GPU names it for people.
	GPU string
	// List are the backends that may, the strongest first.
	List   []sharing.Backend
	Report Report
}

// of is the answer of a backend, which is no where the list lacks it.
func (o On) of(b sharing.Backend) Support {
	if !slices.Contains(o.List, b) {
		return Support{Answer: NotSupported, Reason: "its list of backends does not have it"}
	}
	return o.Report.Of(b)
}

// Choice is what holds a share.
type Choice struct {
	// Backend is sharing.BackendNone where none of the list works.
	Backend sharing.Backend
	// Level is the backend's. Without one it is sharing.LevelUnknown if some backend is unknown, else
	// sharing.LevelNone.
	Level sharing.Level
	// Reason says of each stronger backend of the list why it is not that; without a backend, also which ones no list
	// has. It is empty where there is nothing stronger.
	Reason string
}

// Choose takes the first backend that each of the GPUs lists and that works on each. It passes over an unknown one.
// Where their lists have equally strong ones in another order, that of the first GPU counts.
func Choose(on ...On) Choice {
	c := Choice{Level: sharing.LevelNone}
	var why []string
	all := together(on)
	for _, b := range all {
		s := onAll(b, on)
		if s.OK() {
			c.Backend, c.Level = b, b.Level()
			if s.Reason != "" {
				why = append(why, b.String()+": "+s.Reason)
			}
			break
		}
		if s.Answer == NoAnswer {
			c.Level = sharing.LevelUnknown
		}
		why = append(why, b.String()+": "+s.String())
	}
	if c.Backend == sharing.BackendNone && len(on) > 0 {
		for _, b := range sharing.Backends() {
			if !slices.Contains(all, b) {
				why = append(why, b.String()+": not listed in backends")
			}
		}
	}
	c.Reason = strings.Join(why, "; ")
	return c
}

// together are the backends of all lists, the strongest first.
func together(on []On) []sharing.Backend {
	var all []sharing.Backend
	for _, g := range on {
		for _, b := range g.List {
			if !slices.Contains(all, b) {
				all = append(all, b)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b sharing.Backend) int { return cmp.Compare(b.Level(), a.Level()) })
	return all
}

// onAll is what a backend can do on all of the GPUs. The answer of the first GPU that surely cannot have it counts,
// else that of the first unknown one.
func onAll(b sharing.Backend, on []On) Support {
	worst := Support{Answer: Supported}
	for _, g := range on {
		s := g.of(b)
		if len(on) > 1 && s.Reason != "" {
			s.Reason = "GPU " + g.GPU + ": " + s.Reason
		}
		switch {
		case s.Answer == NotSupported && worst.Answer != NotSupported,
			s.Answer == NoAnswer && worst.Answer == Supported,
			s.Answer == Supported && worst == Support{Answer: Supported}:
			worst = s
		}
	}
	return worst
}
