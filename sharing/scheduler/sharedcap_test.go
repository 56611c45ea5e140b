// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

// Containers that share a cap are placed as one, where the container is whose cap it is; a node's count has each.
func TestWantOfASharedCap(t *testing.T) {
	t.Parallel()
	p := podOf("u", nil, "share-cap-with.kerf.dev/side", "main")
	p.Containers = []sharing.PodContainer{{Name: "side", Limits: memory(4)}, {Name: "main", Limits: memory(6)},
		{Name: "alone", Limits: memory(1)}}
	w := want(t, p)
	asks := map[string]sharing.Bytes{}
	for _, a := range w.Containers {
		asks[a.Container] = a.Request.Memory
	}
	if d := cmp.Diff(map[string]sharing.Bytes{"main": 10 * sharing.GiB, "alone": sharing.GiB}, asks); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if n := w.Limits[sharing.ResourceMemory]; n != 11 {
		t.Errorf("takes %d units of the node, want 11", n)
	}
	p.Annotations["share-cap-with.kerf.dev/side"] = "mian"
	if _, _, err := scheduler.PodRequestOf(p); !errors.Is(err, sharing.ErrInvalid) {
		t.Errorf("with no other: %v", err)
	}
}
