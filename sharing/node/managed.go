// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// capsOf are the caps of grants.
func capsOf(grants []ledger.Grant) map[string]sharing.Placement {
	out := map[string]sharing.Placement{}
	for _, g := range grants {
		out[string(g.Claim.ID)] = g.Caps()
	}
	return out
}
