// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"time"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/mig/turn"
)

// Turning says what becomes of a GPU whose MIG mode is demand's to change, busy or idle; the zero value is that of another.
type Turning struct {
	// To is what it becomes with demand.
	To TurnsTo
	// For is who it changes for now; empty where it does not change.
	For string
	// Stays is what keeps it as it is for now, a clause; empty where nothing does.
	Stays string
}

// turningOf needs the lock.
func (r *Runtime) turningOf(s mig.State, now time.Time) Turning {
	to := func(on bool) TurnsTo {
		if on {
			return TurnsToMIG
		}
		return TurnsToPlain
	}
	if t := r.turning[s.GPU]; t != nil {
		return Turning{To: to(t.on), For: t.who}
	}
	g, ok := r.turnGPU(s, now)
	if !ok {
		return Turning{}
	}
	return Turning{To: to(!g.On), Stays: turn.Why(g, r.pool.KeepWarm(), now)}
}
