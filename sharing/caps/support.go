// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package caps

import (
	"context"
	"sync"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/caps/choice"
)

// Answer is what a probe found.
type Answer = choice.Answer

// The answers.
const (
	CouldNotTell = choice.CouldNotTell
	Supported    = choice.Supported
	NotSupported = choice.NotSupported
)

// Support is a probe's answer for people.
type Support = choice.Support

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
