// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package startcheck

import (
	"fmt"
	"testing"
	"time"
)

// Each grant has one turn in each period, and no two at once. A grant that comes during a round is in the next one.
func TestTurns(t *testing.T) {
	const every = 10 * time.Second
	var held []string
	grants := func() []string { return held }
	turn := NewSchedule[string](every)
	for _, n := range []int{0, 1, 110, 3, 0, 7} {
		held = nil
		for i := range n {
			held = append(held, fmt.Sprint("grant-", i))
		}
		seen, passed := map[string]int{}, time.Duration(0)
		for range max(n, 1) {
			id, ok := turn.Next(grants)
			if ok != (n > 0) {
				t.Fatalf("%d grants: Next returns %t", n, ok)
			}
			if ok {
				seen[id]++
			}
			if turn.Pause <= 0 {
				t.Fatalf("%d grants: no pause", n)
			}
			passed += turn.Pause
			held = append([]string{}, held...)
			if n > 0 && len(held) == n {
				held = append(held, "late")
			}
		}
		if len(seen) != n || seen["late"] > 0 {
			t.Errorf("%d grants: %d had their turn: %v", n, len(seen), seen)
		}
		if passed > every || n > 0 && passed < every*9/10 {
			t.Errorf("%d grants take %v", n, passed)
		}
	}
}
