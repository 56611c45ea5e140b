// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"math/bits"
	"slices"
	"testing"
)

func TestChoices(t *testing.T) {
	for n := range 13 {
		for k := 1; k <= n; k++ {
			var want []uint32
			for x := range uint32(1) << n {
				if bits.OnesCount32(x) == k {
					want = append(want, x)
				}
			}
			if got := slices.Collect(choices32(n, k)); !slices.Equal(got, want) {
				t.Errorf("%d of %d: %v, want %v", k, n, got, want)
			}
		}
	}
	count := 0
	for x := range choices32(31, 2) {
		if count++; bits.OnesCount32(x) != 2 || x>>31 != 0 {
			t.Fatalf("%b", x)
		}
	}
	if count != 31*30/2 {
		t.Errorf("%d choices of 2 of 31", count)
	}
}
