// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package contextsize

import (
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// Rest is how long a GPU has no grant before it is measured: grants that follow each other are not disturbed.
	Rest = 10 * time.Second
	// firstRetry and lastRetry are how long a kind waits after a measurement that failed, the first time and at most.
	firstRetry = time.Minute
	lastRetry  = time.Hour
)

// GPU is a GPU that could be measured.
type GPU struct {
	ID   sharing.GPUID
	Kind Kind
	// Idle is true if no grant has the GPU, it is healthy, and nothing changes its settings.
	Idle bool
	// Useful is true if shares of it are enforced by a backend that needs the size.
	Useful bool
}

// Planner decides which GPU is measured next. The zero value has seen no GPU. It serves one goroutine.
type Planner struct {
	idleSince map[sharing.GPUID]time.Time
	failures  map[Kind]failure
}

type failure struct {
	until time.Time
	pause time.Duration
}

// Next returns the GPU to measure now: the first useful one that was idle for Rest in each sample. Its kind is unknown
// and may be tried. ok is false if there is none. The caller passes every sample of the GPUs to Next.
func (p *Planner) Next(now time.Time, gpus []GPU, known func(Kind) bool) (gpu GPU, ok bool) {
	idle := map[sharing.GPUID]time.Time{}
	for _, g := range gpus {
		if !g.Idle {
			continue
		}
		since, was := p.idleSince[g.ID]
		if !was {
			since = now
		}
		idle[g.ID] = since
		if !ok && g.Useful && !known(g.Kind) && now.Sub(since) >= Rest && !now.Before(p.failures[g.Kind].until) {
			gpu, ok = g, true
		}
	}
	p.idleSince = idle
	return gpu, ok
}

// Busy restarts the rest of a GPU because a process without a grant used it.
func (p *Planner) Busy(gpu sharing.GPUID) { delete(p.idleSince, gpu) }

// Failed notes that a measurement of the kind failed. The next one waits, longer each time.
func (p *Planner) Failed(kind Kind, now time.Time) {
	if p.failures == nil {
		p.failures = map[Kind]failure{}
	}
	pause := min(max(2*p.failures[kind].pause, firstRetry), lastRetry)
	p.failures[kind] = failure{until: now.Add(pause), pause: pause}
}
