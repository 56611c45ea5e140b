// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package health decides what is known of a GPU's hardware from probes, XID events and the driver's own
// recovery action.
//
// It promises to be pure and to mark exactly the GPU that a fault is on; a fault that an application causes
// itself marks nothing; a GPU comes back by itself once the driver says that nothing is left to do and
// enough probes in a row were clean.
//
// It does not probe: the caller feeds it. It does not act on grants: the ledger refuses new claims on a
// GPU that is not healthy, and running ones are left alone.
package health

import (
	"errors"
	"fmt"

	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// cleanProbes in a row bring a lost or unhealthy GPU back; one is enough after a single odd answer.
	cleanProbes = 3
	// badProbes in a row that fail without saying "lost" make a suspect GPU unhealthy.
	badProbes = 3
)

// xidLost is "GPU has fallen off the bus".
const xidLost = 79

// harmlessXID reports whether an XID says nothing about the GPU's own state: faults of the application
// (13 graphics exception, 31 memory page fault, 43 reset channel, 45 preemptive cleanup, 68 video processor
// exception, 109 context switch timeout), a high rate of corrected errors (92), and an uncorrectable error
// that was contained to one process (94). NVIDIA's XID catalogue; the first six are also what NVIDIA's own
// device plugin leaves out.
func harmlessXID(xid uint64) bool {
	switch xid {
	case 13, 31, 43, 45, 68, 92, 94, 109:
		return true
	}
	return false
}

// Recovery is the driver's own word on what the GPU needs.
type Recovery struct {
	// Known is false when this driver has no such word.
	Known bool
	// Action is empty when nothing is needed, else its name for people ("GPU reset").
	Action string
}

// Machine is the state of one GPU. The zero value is an unknown GPU that one clean probe makes healthy.
type Machine struct {
	state  sharing.Health
	reason string
	// clean counts good probes since the last bad sign; bad counts failed ones since the last good.
	clean, bad int
	// fault is the XID that stands until the driver says that it is mended, 0 for none. Invariant: fault
	// != 0 implies state is HealthUnhealthy or HealthLost.
	fault uint64
}

// State returns the health and, when it is not healthy, why.
func (m *Machine) State() (sharing.Health, string) { return m.state, m.reason }

// XID takes one XID event and reports whether the state changed.
func (m *Machine) XID(xid uint64) bool {
	if harmlessXID(xid) {
		return false
	}
	m.clean = 0
	m.fault = xid
	if xid == xidLost {
		return m.set(sharing.HealthLost, "XID 79: fell off the bus; reset the GPU or reboot the node")
	}
	if m.state == sharing.HealthLost {
		return false
	}
	return m.set(sharing.HealthUnhealthy, fmt.Sprintf("XID %d; see NVIDIA's XID catalogue for the remedy, mostly a GPU reset", xid))
}

// Probe takes the outcome of one cheap call on the GPU and the driver's recovery action, and reports
// whether the state changed.
func (m *Machine) Probe(err error, rec Recovery) bool {
	switch {
	case err == nil:
		return m.good(rec)
	case errors.Is(err, sharing.ErrLost):
		m.clean, m.bad = 0, 0
		return m.set(sharing.HealthLost, "the driver has lost it: "+err.Error())
	}
	m.clean = 0
	m.bad++
	if m.state == sharing.HealthLost || m.fault != 0 {
		return false
	}
	if m.bad >= badProbes {
		return m.set(sharing.HealthUnhealthy, fmt.Sprintf("did not answer %d probes: %v", m.bad, err))
	}
	return m.set(sharing.HealthSuspect, fmt.Sprintf("a probe failed: %v", err))
}

// Reloaded tells that the driver was loaded anew: what an XID had broken is repaired or will show again.
func (m *Machine) Reloaded() { m.fault, m.clean, m.bad = 0, 0, 0 }

func (m *Machine) good(rec Recovery) bool {
	m.bad = 0
	if rec.Known && rec.Action != "" {
		m.clean = 0
		if m.fault != 0 { // the XID's own text says more
			return false
		}
		return m.set(sharing.HealthUnhealthy, "the driver asks for: "+rec.Action)
	}
	if m.fault != 0 && m.fault != xidLost && !rec.Known {
		return false // no word of the driver that it is mended: wait for Reloaded
	}
	m.clean++
	if m.clean >= cleanProbes || m.state == sharing.HealthUnknown || m.state == sharing.HealthSuspect {
		m.fault = 0
		return m.set(sharing.HealthOK, "")
	}
	return false
}

func (m *Machine) set(h sharing.Health, reason string) bool {
	changed := m.state != h || m.reason != reason
	m.state, m.reason = h, reason
	return changed
}
