// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"errors"
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// cleanProbes in a row bring a GPU back; one is enough after a single odd answer.
	cleanProbes = 3
	// muteProbes in a row without an answer make a suspect GPU an unhealthy one.
	muteProbes = 10
	// slowProbes in a row with the hardware slowed down count.
	slowProbes = 30
	// freeTurns are how often a GPU may leave health before it has to be clean for longer: twice as long each time, and
	// eight times at most. calmProbes in a row in health make it forgotten once.
	freeTurns   = 2
	mostDoubled = 3
	calmProbes  = 300
	// mostXIDs are told of by name; more of them change no state.
	mostXIDs = 8
)

// State is what is known of a GPU.
type State struct {
	Health sharing.Health
	// Reason and Remedy are for people: why it is not healthy, and what to do; both empty when it is, and while it is
	// not known.
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
	state State
	// stands are the causes that were seen since the GPU was healthy last.
	stands [causes]bool
	// xids are the critical and draining ones since then.
	xids []uint64
	// unnamed is the last XID of a GPU that the driver did not name.
	unnamed uint64
	// What the texts of causes need.
	lostWhy, silentWhy, action string
	// clean counts good probes since the last bad sign, silent those without an answer since the GPU was healthy last.
	clean, silent int
	// turns is how often it left health, and calm the clean probes in health since it was last counted down.
	turns, calm int
	// What was told last of the sensors.
	errors, links           Count
	mostLinks               uint64
	pending, failed         bool
	overheated, powerBraked int
}

// State returns what is known.
func (m *Machine) State() State { return m.state }

// XID takes one XID event of this GPU and reports whether the state changed.
func (m *Machine) XID(xid uint64) bool {
	class := Classify(xid)
	switch class {
	case Application:
		return false
	case OffBus:
		m.stands[causeLost] = true
		m.lostWhy, _ = describe(xid)
	case Drain:
		m.stands[causeDrain] = true
	case Critical:
		m.stands[causeFault] = true
	}
	if class != OffBus && len(m.xids) < mostXIDs && !slices.Contains(m.xids, xid) {
		m.xids = append(m.xids, xid)
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
	m.stands[causeUnnamed], m.unnamed, m.clean = true, xid, 0
	return m.settle()
}

// Probe takes one look at the GPU and reports whether the state changed.
func (m *Machine) Probe(l Look) bool {
	switch {
	case l.Err == nil:
		return m.answered(l)
	case errors.Is(l.Err, sharing.ErrLost):
		m.clean, m.silent = 0, 0
		if !m.stands[causeLost] { // an XID says more
			m.lostWhy = "the driver has lost it: " + l.Err.Error()
		}
		m.stands[causeLost] = true
		return m.settle()
	}
	m.clean = 0
	m.silent++
	m.silentWhy = l.Err.Error()
	m.stands[causeSilent] = true
	m.stands[causeMute] = m.stands[causeMute] || m.silent >= muteProbes
	return m.settle()
}

// answered takes what a GPU that answers tells.
func (m *Machine) answered(l Look) bool {
	bad := m.sense(l.Sensors)
	if l.Recovery.Known && l.Recovery.Action != "" {
		m.action, bad = l.Recovery.Action, append(bad, causeRecovery)
	}
	for _, c := range bad {
		m.stands[c] = true
	}
	// Without the driver's word that it is mended, a fault stands until the driver is loaded anew.
	if len(bad) > 0 || len(m.xids) > 0 && !l.Recovery.Known {
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
		m.stands, m.xids, m.silent = [causes]bool{}, nil, 0
	}
	return m.settle()
}

// sense takes the sensors and returns what is wrong now.
func (m *Machine) sense(s Sensors) (bad []cause) {
	if s.Uncorrected.Known {
		if m.errors.Known && s.Uncorrected.N > m.errors.N {
			bad = append(bad, causeErrors)
		}
		m.errors = s.Uncorrected
	}
	if s.Links.Known {
		m.links, m.mostLinks = s.Links, max(m.mostLinks, s.Links.N)
	}
	note := func(c cause, is bool) {
		if is {
			bad = append(bad, c)
		}
	}
	note(causeLinks, m.links.N < m.mostLinks)
	note(causeRemapPending, hold(&m.pending, s.RemapPending))
	note(causeRemapFailed, hold(&m.failed, s.RemapFailed))
	note(causeOverheat, row(&m.overheated, s.Overheat) >= slowProbes)
	note(causePowerBrake, row(&m.powerBraked, s.PowerBrake) >= slowProbes)
	return bad
}

// hold keeps what a flag said last.
func hold(last *bool, f Flag) bool {
	if f != Untold {
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
	case Untold:
	}
	return *n
}

// needed is how many clean probes in a row bring the GPU back.
func (m *Machine) needed() int {
	if m.state.Health == sharing.HealthUnknown {
		return 1
	}
	n := cleanProbes
	odd := [causes]bool{causeSilent: true}
	if m.stands == odd && m.silent <= 1 {
		n = 1
	}
	return n << min(max(m.turns-freeTurns, 0), mostDoubled)
}

// settle makes the state of the causes that stand, and reports whether it changed.
func (m *Machine) settle() bool {
	was := m.state
	m.state = State{Health: sharing.HealthOK}
	for c := range causes {
		if m.stands[c] {
			m.state.Health = c.health()
			m.state.Reason, m.state.Remedy = m.text(c)
			break
		}
	}
	if was.Health == sharing.HealthOK && m.state.Health != sharing.HealthOK {
		m.turns, m.calm = m.turns+1, 0
	}
	return m.state != was
}
