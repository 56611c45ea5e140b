// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"math"
	"testing"
)

// The bound leaves room for what lives, however much that is.
func TestBoundOfMemory(t *testing.T) {
	const mib = 1 << 20
	for live, want := range map[uint64]int64{0: 26 * mib, 8 * mib: 26 * mib, 10 * mib: 28 * mib, 12 * mib: 32 * mib,
		100 * mib: 208 * mib} {
		if got := bound(live); got != want {
			t.Errorf("bound(%d MiB) = %d MiB, want %d", live/mib, got/mib, want/mib)
		}
	}
	if got := bound(math.MaxUint64); got <= 1<<40 {
		t.Errorf("bound of all there is: %d", got)
	}
}
