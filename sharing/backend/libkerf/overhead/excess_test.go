// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package overhead

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
)

func TestHolds(t *testing.T) {
	p, q := Process{PID: 1, Start: 1}, Process{PID: 2, Start: 2}
	l := Sample{
		Listed: []sharing.GPURef{{UUID: "a"}, {UUID: "b"}, {UUID: "c"}},
		Uses: []Use{
			{Process: p, GPU: sharing.GPURef{UUID: "a"}, Bytes: 5, Known: true},
			{Process: q, GPU: sharing.GPURef{UUID: "a"}, Bytes: 7, Known: true},
			{Process: p, GPU: sharing.GPURef{UUID: "b"}, Bytes: 3, Known: true},
			{Process: q, GPU: sharing.GPURef{UUID: "b"}},
			{Process: p, GPU: sharing.GPURef{UUID: "unreported"}, Bytes: 9, Known: true},
		},
		After: map[Process]Count{p: {Managed: map[sharing.GPURef]sharing.Bytes{{UUID: "a"}: 11,
			{UUID: "c"}: math.MaxUint64}}, q: {Managed: map[sharing.GPURef]sharing.Bytes{{UUID: "c"}: 1}}},
		Ended: map[sharing.GPURef]sharing.Bytes{{UUID: "a"}: 13},
	}
	want := map[sharing.GPURef]sharing.Bytes{{UUID: "a"}: 5 + 7 + 11 + 13, {UUID: "c"}: math.MaxUint64}
	if d := cmp.Diff(want, l.Used()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestExceeds(t *testing.T) {
	for _, c := range []struct {
		held, limit, context sharing.Bytes
		want                 bool
	}{
		{0, 0, 0, false}, {4, 4, 0, false}, {5, 4, 0, true}, {5, 4, 1, false}, {6, 4, 1, true}, {3, 4, 0, false},
		{math.MaxUint64, math.MaxUint64, 0, false}, {math.MaxUint64, 0, math.MaxUint64, false},
		{math.MaxUint64, 1, 1, true},
	} {
		if got := Exceeds(c.held, c.limit, c.context); got != c.want {
			t.Errorf("%d of %d with a context of %d: %v", c.held, c.limit, c.context, got)
		}
	}
}
