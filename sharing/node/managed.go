// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// managedCaveat says what the level of a share leaves open because of managed memory; empty for levels that count all memory,
// and for a level that is not known.
func managedCaveat(rule config.ManagedMemory, level sharing.Level, b config.Backend) string {
	switch level {
	case sharing.LevelReactive:
		b = config.BackendReactive // also where it stands in for a stronger backend
	case sharing.LevelNone:
		b = config.BackendNone
	case sharing.LevelClient, sharing.LevelDriver:
	case sharing.LevelUnknown, sharing.LevelHardware, sharing.LevelExclusive:
		return ""
	}
	return rule.Caveat(b)
}

// capsOf are the caps of grants.
func capsOf(grants []ledger.Grant) map[string]sharing.Placement {
	out := map[string]sharing.Placement{}
	for _, g := range grants {
		out[string(g.Claim.ID)] = g.Caps()
	}
	return out
}
