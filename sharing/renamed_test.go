// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"maps"
	"testing"
)

// A pod that an earlier version bound keeps its annotations, and its containers start again by them.
func TestCurrentAnnotations(t *testing.T) {
	type kv = map[string]string
	for name, tc := range map[string]struct{ in, want kv }{
		"none":      {nil, nil},
		"of others": {kv{"a/b": "c", "placement.other.dev/x": "y"}, kv{"a/b": "c", "placement.other.dev/x": "y"}},
		"of today":  {kv{"kerf.dev/gpu-count": "2"}, kv{"kerf.dev/gpu-count": "2"}},
		"of the pod": {kv{"kerf.dev/gpus": "2", "kerf.dev/placement": "spread", "kerf.dev/translated": "x", "a": "b"},
			kv{"kerf.dev/gpu-count": "2", "kerf.dev/placement-policy": "spread", "kerf.dev/translated-from": "x",
				"a": "b"}},
		"of a container": {kv{"gpus.kerf.dev/c": "2", "share-with.kerf.dev/c": "d", "placement.kerf.dev/c": planA},
			kv{"gpu-count.kerf.dev/c": "2", "share-cap-with.kerf.dev/c": "d", "scheduling.kerf.dev/c": planA}},
		"both": {kv{"placement.kerf.dev/c": planA, "scheduling.kerf.dev/c": planB},
			kv{"scheduling.kerf.dev/c": planB}},
	} {
		before := maps.Clone(tc.in)
		if got := CurrentAnnotations(tc.in); !maps.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
		if !maps.Equal(before, tc.in) {
			t.Errorf("%s: the annotations of the pod changed to %v", name, tc.in)
		}
	}
}

// What an earlier version bound asks for the same, and is planned on the same GPU.
func TestRequestOfAnEarlierVersion(t *testing.T) {
	type kv = map[string]string
	former := kv{"kerf.dev/gpus": "2", "kerf.dev/placement": "spread", "placement.kerf.dev/main": planA,
		"share-with.kerf.dev/side": "main"}
	now := CurrentAnnotations(former)
	r, asks, err := RequestFromResources(kv{"kerf.dev/gpu-memory-gib": "4"}, now, "main")
	if err != nil || !asks || r.GPUs != 2 || r.Place != PlaceSpread {
		t.Errorf("%+v, %t, %v", r, asks, err)
	}
	if got := Planned(now, "main").GPUs; len(got) != 1 || string(got[0]) != planA {
		t.Errorf("planned on %v", got)
	}
	if got := ShareWith(now, "side"); got != "main" {
		t.Errorf("shares the cap of %q", got)
	}
}
