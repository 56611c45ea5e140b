// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import "github.com/kerf-gpu/kerf/sim/wire"

const (
	// eventXID is nvmlEventTypeXidCriticalError.
	eventXID = 0x8
	// history is how many events are kept for waiters that are behind; older ones are lost to them.
	history = 1 << 14
)

// Event is something that a driver tells of unasked.
type Event struct {
	GPU    int
	Type   uint64 // an nvmlEventType bit
	Data   uint64 // the XID
	GI, CI uint64 // wire.NoInstance: the whole GPU
}

// Cursor is a place in the stream of events.
type Cursor uint64

// events holds the last ones; the first in list has number first.
type events struct {
	list  []Event
	first Cursor
}

func (e *events) raise(ev Event) {
	if len(e.list) >= 2*history {
		e.list = append(e.list[:0], e.list[history:]...)
		e.first += history
	}
	e.list = append(e.list, ev)
}

// Now returns the place after the last event.
func (m *Model) Now() Cursor { return m.events.first + Cursor(len(m.events.list)) }

// Next returns the first event at or after a place whose GPU and type are in the masks, and the place
// after it. Without one, ok is false and the place is the end.
func (m *Model) Next(from Cursor, gpus, types uint64) (ev Event, next Cursor, ok bool) {
	for at := max(from, m.events.first); at < m.Now(); at++ {
		ev := m.events.list[at-m.events.first]
		if gpus>>ev.GPU&1 == 1 && types&ev.Type != 0 {
			return ev, at + 1, true
		}
	}
	return Event{}, m.Now(), false
}

// raiseXID raises an event of the whole GPU or, with gi, of a GPU instance and its one compute instance.
func (m *Model) raiseXID(g *gpu, xid uint64, gi *uint64) {
	ev := Event{GPU: g.index, Type: eventXID, Data: xid, GI: wire.NoInstance, CI: wire.NoInstance}
	if gi != nil {
		ev.GI, ev.CI = *gi, 0
	}
	m.events.raise(ev)
}
