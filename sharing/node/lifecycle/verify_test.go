// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// However many leases there are, each has its turn within verifyEvery, and no two come at once; who comes meanwhile is
// in the next round.
func TestEachLeaseHasItsTurn(t *testing.T) {
	var held []ledger.ClaimID
	leases := func() []ledger.ClaimID { return held }
	turn := newTurns()
	for _, n := range []int{0, 1, 110, 3, 0, 7} {
		held = nil
		for i := range n {
			held = append(held, ledger.ClaimID(fmt.Sprint("claim-", i)))
		}
		seen, passed := map[ledger.ClaimID]int{}, time.Duration(0)
		for range max(n, 1) {
			id, ok := turn.next(leases)
			if ok != (n > 0) {
				t.Fatalf("%d leases: somebody's turn: %t", n, ok)
			}
			if ok {
				seen[id]++
			}
			if turn.pause <= 0 {
				t.Fatalf("%d leases: no pause", n)
			}
			passed += turn.pause
			held = append([]ledger.ClaimID{}, held...)
			if n > 0 && len(held) == n {
				held = append(held, "late")
			}
		}
		if len(seen) != n || seen["late"] > 0 {
			t.Errorf("%d leases: %d had their turn: %v", n, len(seen), seen)
		}
		if passed > verifyEvery || n > 0 && passed < verifyEvery*9/10 {
			t.Errorf("%d leases take %v", n, passed)
		}
	}
}
