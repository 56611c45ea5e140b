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

// Machine is the state of one GPU while one driver is loaded; after a reload, start with a new one. The zero
// value is an unknown GPU that one clean probe makes healthy.
type Machine struct {
	state  sharing.Health
	reason string
	// clean counts good probes since the last bad sign.
	clean int
	// bad counts probes that failed in a row without the word "lost". A single odd answer needs one clean
	// probe after it, a GPU that hung needs as many as a lost one.
	bad int
	// fault is the XID that stands until the driver says that it is mended, 0 for none. Invariant: fault
	// != 0 implies that state is not HealthOK.
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
	return m.set(sharing.HealthUnhealthy, faultReason(xid))
}

func faultReason(xid uint64) string {
	return fmt.Sprintf("XID %d; see NVIDIA's XID catalogue for the remedy, mostly a GPU reset", xid)
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
	if m.state == sharing.HealthLost {
		return false
	}
	reason := "does not answer: " + err.Error()
	if m.fault != 0 {
		reason += "; before that " + faultReason(m.fault)
	}
	return m.set(sharing.HealthSuspect, reason)
}

func (m *Machine) good(rec Recovery) bool {
	if rec.Known && rec.Action != "" {
		m.clean = 0
		if m.fault == xidLost {
			return false
		}
		if m.fault != 0 { // the XID's own text says more
			return m.set(sharing.HealthUnhealthy, faultReason(m.fault))
		}
		return m.set(sharing.HealthUnhealthy, "the driver asks for: "+rec.Action)
	}
	if m.fault != 0 && m.fault != xidLost && !rec.Known {
		// No word of the driver that it is mended: it stands until the driver is loaded anew.
		return m.set(sharing.HealthUnhealthy, faultReason(m.fault))
	}
	m.clean++
	if m.clean >= cleanProbes || m.state == sharing.HealthUnknown || m.state == sharing.HealthSuspect && m.bad <= 1 {
		m.fault, m.bad = 0, 0
		return m.set(sharing.HealthOK, "")
	}
	return false
}

func (m *Machine) set(h sharing.Health, reason string) bool {
	changed := m.state != h || m.reason != reason
	m.state, m.reason = h, reason
	return changed
}
