// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

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
	// freeTurns are how often a GPU may leave health before it has to be clean for longer: twice as long each time, and
	// eight times at most. calmProbes in a row in health make it forgotten once.
	freeTurns   = 2
	mostDoubled = 3
	calmProbes  = 300
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
	state  State
	causes standing
	told   readings
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

// Probe takes one look at the GPU and reports whether the state changed.
func (m *Machine) Probe(l Look) bool {
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
func (m *Machine) answered(l Look) bool {
	bad := m.told.take(l.Sensors)
	if l.Recovery.Known && l.Recovery.Action != "" {
		m.causes.action, bad = l.Recovery.Action, append(bad, causeRecovery)
	}
	m.causes.add(bad...)
	// Without the driver's word that it is mended, a fault stands until the driver is loaded anew.
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
	m.state = m.causes.state(m.told)
	if was.Health == sharing.HealthOK && m.state.Health != sharing.HealthOK {
		m.turns, m.calm = m.turns+1, 0
	}
	return m.state != was
}
