// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nodeserver

import (
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/status"
)

// The message of a grant has the shared cap in addition to its own amounts, and its class.
func TestMessageOfASharedCap(t *testing.T) {
	own := sharing.Placement{{GPU: sharing.GPURef{UUID: "GPU-1"}, Memory: 4, Percent: 10}}
	g := status.Grant{
		Grant: ledger.Grant{Reservation: ledger.Reservation{ID: "side", With: "main", Placement: own},
			SharedCap: sharing.Placement{{GPU: sharing.GPURef{UUID: "GPU-1"}, Memory: 10, Percent: 30}}},
		Used: []sharing.Bytes{0}, UsedKnown: []bool{true}, Compute: status.Compute{By: "libkerf", Reason: "fair",
			Priority: 7},
	}
	m := Message(status.State{Grants: []status.Grant{g}}).GetGrants()[0]
	if j := m.GetSharedCap(); m.GetCapSharedWith() != "main" || len(j) != 1 || j[0].GetGpu() != "GPU-1" ||
		j[0].GetMemoryBytes() != 10 || j[0].GetPercent() != 30 {
		t.Errorf("cap shared with %q, shared cap %v", m.GetCapSharedWith(), j)
	}
	if m.GetMemoryBytes() != 4 || m.GetPercent() != 10 || m.GetCompute().GetPriority() != 7 {
		t.Errorf("%v", m)
	}
}
