// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/lifecycle"
	"github.com/kerf-gpu/kerf/sharing/node/store"
)

// weaker is what enforces the cap of a grant of libkerf or MPS now, and why that is less than it was given. If it is
// not less, ok is false.
func (r *Runtime) weaker(l store.Reader, g ledger.Grant) (level sharing.Level, why string, ok bool) {
	if g.Active == nil {
		return 0, "", false
	}
	way, found := backend.PropertiesOf(g.Backend), r.Guard.Of(g.ID)
	switch {
	case way.Served: // which the reactive backend always watches
		return sharing.LevelReactive, found.Exceeds, found.Exceeds != "" && found.Lost == ""
	case !way.Counts:
		return 0, "", false
	}
	fault := r.Libkerf.Check(lifecycle.GrantOf(l, g))
	if fault.Unknown != "" {
		return sharing.LevelUnknown, fault.Unknown, true
	}
	why = lifecycle.JoinSentences([]string{found.Exceeds, fault.Bypassed})
	if watches(l, r, g) {
		return sharing.LevelReactive, why, why != ""
	}
	return sharing.LevelNone, why, why != ""
}
