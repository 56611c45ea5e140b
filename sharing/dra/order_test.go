// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"slices"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

func TestUseOf(t *testing.T) {
	for _, tc := range []struct {
		grants int
		whole  bool
		memory sharing.Bytes
		want   Use
	}{
		{0, false, 80 * sharing.GiB, UseEmpty},
		{1, false, 50 * sharing.GiB, UseShared},
		{1, false, sharing.GiB, UseShared},
		{1, false, sharing.GiB - 1, UseFull},
		{1, true, 0, UseFull},
	} {
		if got := UseOf(tc.grants, tc.whole, tc.memory); got != tc.want {
			t.Errorf("%+v: %d", tc, got)
		}
	}
}

// TestOrdered: shared GPUs come first, then empty and full ones, each by index.
func TestOrdered(t *testing.T) {
	var gpus []GPU
	uses := map[sharing.GPUID]Use{}
	for i, use := range []Use{UseFull, UseEmpty, UseShared, UseEmpty, UseShared} {
		g := gpuOf(sharing.GPUID(rune('a' + i)))
		g.Index = i
		gpus, uses[g.UUID] = append(gpus, g), use
	}
	slices.Reverse(gpus)
	var got []int
	for _, g := range Ordered(gpus, func(id sharing.GPUID) Use { return uses[id] }) {
		got = append(got, g.Index)
	}
	if !slices.Equal(got, []int{2, 4, 1, 3, 0}) {
		t.Errorf("order %v", got)
	}
}
