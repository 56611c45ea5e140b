// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"

	"github.com/kerf-gpu/kerf/test/limitspage"
)

// TestListenersAreDocumented finds each share in docs/reference/limits.md, with its numbers.
func TestListenersAreDocumented(t *testing.T) {
	limitspage.Check(t, "../../../docs/reference/limits.md", "kerf-agent", listenerShares(), reservedFiles)
}

// TestPeersHaveAnIdleConnection to be replaced, however many requests they have in flight.
func TestPeersHaveAnIdleConnection(t *testing.T) {
	for _, s := range listenerShares() {
		if !s.Fixed && s.PeerConns <= s.PeerRequests && s.PeerConns < s.Conns {
			t.Errorf("share %s: a peer may have %d requests in flight on %d connections", s.Name, s.PeerRequests,
				s.PeerConns)
		}
	}
}
