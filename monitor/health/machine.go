// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package health decides what is known of a GPU's hardware from probes, XID events, what its sensors tell and the
// driver's own recovery action.
//
// Promises:
//   - A Machine is pure, and it marks exactly the GPU that a fault is on.
//   - A fault that an application causes itself marks nothing.
//   - Many faults at once lose none.
//   - Each state other than healthy has a reason and a remedy.
//   - A GPU recovers by itself once nothing is wrong any more and enough probes in a row were clean. A GPU that changes
//     often needs more of them.
//
// It does not probe: the caller feeds it. It does not act on grants. The ledger rejects new grants on a GPU that is not
// healthy, and the node runtime decides about running ones.
package health

import (
	"errors"

	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// cleanProbes in a row bring a GPU back; one is enough after a single odd answer.
	cleanProbes = 3
	// muteProbes in a row without an answer make a suspect GPU an unhealthy one.
	muteProbes = 10
	// freeTurns are how often a GPU may leave health before it has to be clean for longer. That is twice as long each
	// time, and eight times at most. After calmProbes in a row in health one of them is forgotten.
	freeTurns   = 2
	mostDoubled = 3
	calmProbes  = 300
)

// State is what is known of a GPU.
type State struct {
	Health sharing.Health
	// Reason and Remedy are for people: why it is not healthy, and what to do. Both are empty when it is healthy or
	// unknown.
	Reason, Remedy string
}

// String returns reason and remedy in one sentence.
func (s State) String() string {
	if s.Remedy == "" {
		return s.Reason
	}
	return s.Reason + "; remedy: " + s.Remedy
}

// Machine is the state of one GPU while one driver is loaded; after a reload, start with a new one. The zero
// value is an unknown GPU that one clean probe makes healthy.
type Machine struct {
	state  State
	causes standing
	last   readings
	// clean counts good probes since the last bad sign, silent those without an answer since the GPU was healthy last.
	clean, silent int
	// turns is how often it left health, and calm the clean probes in health since it was last counted down.
	turns, calm int
}

// State returns what is known.
func (m *Machine) State() State { return m.state }

// XID takes one XID event of this GPU and reports whether the state changed.
func (m *Machine) XID(xid uint64) bool {
	if !m.causes.xid(xid) {
		return false
	}
	m.clean = 0
	return m.settle()
}

// Unnamed takes an XID event of which the driver did not say which GPU it is on, and reports whether the state changed.
// Each GPU may be meant, so each is suspect until probes are clean.
func (m *Machine) Unnamed(xid uint64) bool {
	if Classify(xid) == Application {
		return false
	}
	m.causes.unnamed, m.clean = xid, 0
	m.causes.add(causeUnnamed)
	return m.settle()
}

// Probe takes one sample of the GPU and reports whether the state changed.
func (m *Machine) Probe(l Sample) bool {
	switch {
	case l.Err == nil:
		return m.answered(l)
	case errors.Is(l.Err, sharing.ErrLost):
		m.clean, m.silent = 0, 0
		if !m.causes.stand[causeLost] { // an XID says more
			m.causes.lostWhy = "the driver has lost it: " + l.Err.Error()
		}
		m.causes.add(causeLost)
		return m.settle()
	}
	m.clean = 0
	m.silent++
	m.causes.silentWhy = l.Err.Error()
	m.causes.add(causeSilent)
	if m.silent >= muteProbes {
		m.causes.add(causeMute)
	}
	return m.settle()
}

// answered takes what a GPU that answers tells.
func (m *Machine) answered(l Sample) bool {
	bad := m.last.take(l.Sensors)
	if l.Recovery.Known && l.Recovery.Action != "" {
		m.causes.action, bad = l.Recovery.Action, append(bad, causeRecovery)
	}
	m.causes.add(bad...)
	// Unless the driver reports recovery, a fault stands until the driver is loaded again.
	if len(bad) > 0 || len(m.causes.xids) > 0 && !l.Recovery.Known {
		m.clean = 0
		return m.settle()
	}
	m.clean++
	if m.state.Health == sharing.HealthOK {
		if m.calm++; m.calm >= calmProbes {
			m.calm, m.turns = 0, max(m.turns-1, 0)
		}
		return false
	}
	if m.clean >= m.needed() {
		m.causes.stand, m.causes.xids, m.silent = [causes]bool{}, nil, 0
	}
	return m.settle()
}

// needed is how many clean probes in a row bring the GPU back.
func (m *Machine) needed() int {
	if m.state.Health == sharing.HealthUnknown {
		return 1
	}
	n := cleanProbes
	odd := [causes]bool{causeSilent: true}
	if m.causes.stand == odd && m.silent <= 1 {
		n = 1
	}
	return n << min(max(m.turns-freeTurns, 0), mostDoubled)
}

// settle makes the state of the causes that stand, and reports whether it changed.
func (m *Machine) settle() bool {
	was := m.state
	m.state = m.causes.state(m.last)
	if was.Health == sharing.HealthOK && m.state.Health != sharing.HealthOK {
		m.turns, m.calm = m.turns+1, 0
	}
	return m.state != was
}

// Recovery is the driver's own word on what the GPU needs.
type Recovery struct {
	// Known is false when this driver has no such word.
	Known bool
	// Action is empty when nothing is needed, else its name for people ("GPU reset").
	Action string
}

// Flag is something that a GPU tells, or does not tell. What it does not tell is as it was.
type Flag uint8

// The flags.
const (
	FlagUnknown Flag = iota
	No
	Yes
)

// Count is a number that a GPU tells, or does not tell.
type Count struct {
	Known bool
	N     uint64
}

// Sensors are a GPU's sensor values. The zero value has none.
type Sensors struct {
	// Uncorrected counts the memory errors since the driver was loaded that could not be corrected.
	Uncorrected Count
	// RemapPending: a memory row is remapped at the next reset. RemapFailed: there is no row left to remap it to.
	RemapPending, RemapFailed Flag
	// Overheat and PowerBrake: the hardware itself slows the GPU down for its heat, or because its power supply says
	// so. Slowing down by the driver's software is everyday life and is not meant.
	Overheat, PowerBrake Flag
	// Links counts the NVLinks that are up.
	Links Count
}

// Sample is one probe: what came of one cheap call on the GPU and, where it answered, what it tells.
type Sample struct {
	// Err is nil when the GPU answered; it wraps sharing.ErrLost when the driver says that it is gone.
	Err      error
	Recovery Recovery
	Sensors  Sensors
}

// slowProbes in a row with the hardware slowed down count.
const slowProbes = 30

// readings are the last known sensor values.
type readings struct {
	errors, links           Count
	mostLinks               uint64
	pending, failed         bool
	overheated, powerBraked int
}

// take takes the sensors and returns what is wrong now.
func (r *readings) take(s Sensors) (bad []cause) {
	if s.Uncorrected.Known {
		if r.errors.Known && s.Uncorrected.N > r.errors.N {
			bad = append(bad, causeErrors)
		}
		r.errors = s.Uncorrected
	}
	if s.Links.Known {
		r.links, r.mostLinks = s.Links, max(r.mostLinks, s.Links.N)
	}
	note := func(c cause, is bool) {
		if is {
			bad = append(bad, c)
		}
	}
	note(causeLinks, r.links.N < r.mostLinks)
	note(causeRemapPending, hold(&r.pending, s.RemapPending))
	note(causeRemapFailed, hold(&r.failed, s.RemapFailed))
	note(causeOverheat, row(&r.overheated, s.Overheat) >= slowProbes)
	note(causePowerBrake, row(&r.powerBraked, s.PowerBrake) >= slowProbes)
	return bad
}

// hold keeps what a flag said last.
func hold(last *bool, f Flag) bool {
	if f != FlagUnknown {
		*last = f == Yes
	}
	return *last
}

// row counts how often in a row a flag was set.
func row(n *int, f Flag) int {
	switch f {
	case Yes:
		*n = min(*n+1, slowProbes)
	case No:
		*n = 0
	case FlagUnknown:
	}
	return *n
}
