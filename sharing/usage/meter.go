// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package usage adds up what grants use of what they were granted: GPU time, memory and energy, and since when a grant
// is idle.
//
// It promises that every second of a grant is counted once, as known or as unknown. An unknown second is never taken
// for idle, and records of a grant may be added up in any order. It is pure: samples come with their time, by a clock
// that only goes forward.
package usage

import (
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// longest is the most time between two samples that is counted: after more of it, the time in between is unknown.
const longest = 2 * time.Minute

// Observation is what one grant does on one GPU at one moment.
type Observation struct {
	Grant string
	GPU   sharing.GPURef
	Model string
	// Share is the part of the GPU that it was granted, from 0 to 1, and Granted the memory.
	Share   float64
	Granted sharing.Bytes
	// active is false while nothing runs on it: it is then idle.
	Active bool
	// Busy is the percent of the GPU's time since the previous sample that it used, -1 where that is not known.
	Busy int
	// Used is the memory that it holds, where that is known.
	Used      sharing.Bytes
	UsedKnown bool
	// Watts is what the whole GPU takes, 0 where that is not known.
	Watts float64
}

// Record is what a grant used of one GPU over some time.
type Record struct {
	GPU   string `json:"gpu"`
	Model string `json:"model,omitempty"`
	// Share and GrantedBytes are what was granted.
	Share        float64 `json:"share"`
	GrantedBytes uint64  `json:"granted_bytes,omitempty"`
	// Seconds is how long it was granted, and Known the part with a known use of GPU time. Idle is the part of Known
	// without any use. Busy is the GPU time that it used: half a GPU for two seconds is one.
	Seconds float64 `json:"seconds"`
	Known   float64 `json:"known_seconds"`
	Idle    float64 `json:"idle_seconds"`
	Busy    float64 `json:"busy_seconds"`
	// Joules is its part of the energy that the GPU took in Powered of these seconds.
	Joules  float64 `json:"joules,omitempty"`
	Powered float64 `json:"powered_seconds,omitempty"`
	// Memory has the seconds by percent of the granted memory that was held, Compute by percent of the GPU's time.
	Memory  Histogram `json:"memory,omitempty"`
	Compute Histogram `json:"compute,omitempty"`
}

type key struct {
	grant string
	gpu   sharing.GPURef
}

// Meter adds up looks. The zero value is ready for use.
type Meter struct {
	last    map[key]time.Duration
	records map[key]*Record
	// idle is since when a grant has used no GPU time, as far as is known.
	idle map[string]time.Duration
}

// Step takes a sample of all grants. It returns the records of those that are not among them any more.
func (m *Meter) Step(now time.Duration, looks []Observation) (ended map[string][]Record) {
	if m.last == nil {
		m.last, m.records, m.idle = map[key]time.Duration{}, map[key]*Record{}, map[string]time.Duration{}
	}
	here, busy := map[key]bool{}, map[string]bool{}
	totals := map[sharing.GPURef]total{}
	for _, l := range looks {
		totals[l.GPU] = totals[l.GPU].with(l)
	}
	for _, l := range looks {
		k := key{l.Grant, l.GPU}
		here[k] = true
		busy[l.Grant] = busy[l.Grant] || l.Active && l.Busy != 0
		r := m.records[k]
		if r == nil {
			r = &Record{GPU: l.GPU.String(), Model: l.Model, Memory: Histogram{}, Compute: Histogram{}}
			m.records[k] = r
		}
		r.Share, r.GrantedBytes = l.Share, uint64(l.Granted)
		if last, seen := m.last[k]; seen && now > last && now-last <= longest {
			r.add((now - last).Seconds(), l, totals[l.GPU])
		}
		m.last[k] = now
	}
	for grant, is := range busy {
		if _, known := m.idle[grant]; is || !known {
			m.idle[grant] = now
		}
	}
	ended = map[string][]Record{}
	for k := range m.last {
		if here[k] {
			continue
		}
		if r := m.records[k]; r != nil && r.Seconds > 0 {
			ended[k.grant] = append(ended[k.grant], *r)
		}
		delete(m.records, k)
		delete(m.last, k)
	}
	for grant := range m.idle {
		if _, there := busy[grant]; !there {
			delete(m.idle, grant)
		}
	}
	return ended
}

// Idle is how long a grant has used no GPU time. It is 0 while that is unknown, and for an unknown grant.
func (m *Meter) Idle(grant string, now time.Duration) time.Duration {
	since, ok := m.idle[grant]
	if !ok {
		return 0
	}
	return now - since
}

// Take returns the records of all grants since they were taken last.
func (m *Meter) Take() map[string][]Record {
	out := map[string][]Record{}
	for k, r := range m.records {
		if r.Seconds > 0 {
			out[k.grant] = append(out[k.grant], *r)
		}
		delete(m.records, k)
	}
	return out
}

// total is what the grants on one GPU have together.
type total struct{ busy, share float64 }

func (t total) with(l Observation) total {
	if l.Active {
		t.busy += max(0, float64(l.Busy))
	}
	t.share += l.Share
	return t
}

// add counts some seconds in which the grant did what the sample says.
func (r *Record) add(seconds float64, l Observation, all total) {
	r.Seconds += seconds
	if !l.Active {
		l.Busy, l.Used, l.UsedKnown = 0, 0, true
	}
	if l.Busy >= 0 {
		r.Known += seconds
		r.Busy += seconds * float64(l.Busy) / 100
		r.Compute.add(float64(l.Busy), seconds)
		if l.Busy == 0 {
			r.Idle += seconds
		}
	}
	if l.UsedKnown && l.Granted > 0 {
		r.Memory.add(100*float64(l.Used)/float64(l.Granted), seconds)
	}
	if part, ok := all.part(l); ok && l.Watts > 0 {
		r.Powered += seconds
		r.Joules += seconds * l.Watts * part
	}
}

// part is a grant's part of what its GPU takes: by the time that the grants used, and by their shares while none uses
// any.
func (t total) part(l Observation) (float64, bool) {
	switch {
	case l.Busy < 0:
		return 0, false
	case t.busy > 0:
		return float64(l.Busy) / t.busy, true
	case t.share > 0:
		return l.Share / t.share, true
	}
	return 0, false
}
