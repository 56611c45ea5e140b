// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package caps

import (
	"context"
	"sync"

	"github.com/kerf-gpu/kerf/sharing"
)

// Answer is what a probe found.
type Answer uint8

// The answers. The first two are facts that hold as long as the driver is loaded; the third is none.
const (
	// CouldNotTell: the probe could not be made. Never taken for a yes, and asked again each time.
	CouldNotTell Answer = iota
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
	case CouldNotTell:
	}
	return "could not tell"
}

// Support is a probe's answer for people.
type Support struct {
	Answer Answer
	// Reason says why, as a clause; empty when supported.
	Reason string
	// Remedy says what to do about it, as an imperative; empty when supported or when nothing helps.
	Remedy string
}

// OK reports whether the backend may be used.
func (s Support) OK() bool { return s.Answer == Supported }

// probes remembers answers that are facts, per GPU.
type probes struct {
	mu    sync.Mutex
	known map[sharing.GPUID]Support
}

// get returns the remembered answer, or asks and remembers it unless nothing could be told. Two callers may
// ask at once; both answers are good.
func (p *probes) get(ctx context.Context, gpu sharing.GPUID, ask func(context.Context) Support) Support {
	p.mu.Lock()
	s, ok := p.known[gpu]
	p.mu.Unlock()
	if ok {
		return s
	}
	s = ask(ctx)
	if s.Answer == CouldNotTell {
		return s
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil {
		p.known = map[sharing.GPUID]Support{}
	}
	p.known[gpu] = s
	return s
}

// forget drops all answers.
func (p *probes) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.known)
}
