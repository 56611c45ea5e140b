// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"time"

	"github.com/kerf-gpu/kerf/sim/wire"
)

// faultOf is what all calls of a process answer, until it ends, once its work has raised an XID. OK: no process's work
// does.
func faultOf(xid uint64) wire.Status {
	switch xid {
	case 13, 43: // an exception of the graphics engine; the GPU stopped processing
		return wire.FailedLaunch
	case 31: // a page fault
		return wire.BadAddress
	}
	return wire.OK
}

func (c Change) badFault() bool {
	for _, xid := range c.Faults {
		if faultOf(xid) == wire.OK {
			return true
		}
	}
	return false
}

// fail ends the work of a process on a GPU. If it is a client of an MPS server, all clients of that server on the GPU
// fail with it. Their memory stays until they end.
func (m *Model) fail(g *gpu, pid int, xid uint64, now time.Duration) {
	m.raiseXID(g, xid, nil)
	holders := map[ClientID]bool{}
	for _, c := range m.clients {
		if c.gpu == g && c.is(pid) {
			holders[c.holder()] = true
		}
	}
	for _, c := range m.clients {
		if c.gpu == g && holders[c.holder()] && !c.serves {
			c.fault = faultOf(xid)
			g.stop(c.id, now)
		}
	}
}
