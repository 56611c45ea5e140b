// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
)

// A container that the container runtime lists with a GPU's file uses the GPU, unless it has a grant. If it has the
// capabilities of some instances, it uses these.
func TestUnaccountedContainersHoldTheirGPU(t *testing.T) {
	b := newMIGBench(t)
	b.still()
	granted := b.run(b.app("granted", "gpu-percent:50")).seen()
	granted.Devices = []string{"nvidia1"}
	run := func(s sharing.Seen, devices ...string) sharing.Seen {
		s.ID, s.Running, s.Devices = b.newID(), true, devices
		return s
	}
	for name, tt := range map[string]struct {
		seen   sharing.Seen
		on     []int // of the instances of GPU 0, mig.AnyInstance for all
		others bool  // GPU 1 is held
	}{
		"a grant accounts for it": {seen: granted},
		"no device":               {seen: run(sharing.Seen{})},
		"a GPU":                   {seen: run(sharing.Seen{}, "nvidia0"), on: []int{mig.AnyInstance}},
		"guarded, and no grant": {seen: run(sharing.Seen{CDINames: []string{sharing.HookDevice}},
			"nvidia0"), on: []int{mig.AnyInstance}},
		"another GPU":                 {seen: run(sharing.Seen{}, "nvidia1"), others: true},
		"one whose name begins alike": {seen: run(sharing.Seen{}, "nvidia10")},
		"an instance": {seen: run(sharing.Seen{}, "nvidia-cap120", "nvidia-cap121", "nvidia0"),
			on: []int{2}},
		"an instance there, all of GPU 1": {seen: run(sharing.Seen{}, "nvidia-cap130", "nvidia0", "nvidia1"),
			on: []int{3}, others: true},
		"a right to no instance there is": {seen: run(sharing.Seen{}, "nvidia-cap999", "nvidia0"),
			on: []int{mig.AnyInstance}},
		"one that has ended": {seen: sharing.Seen{ID: b.newID(), Removed: true,
			Devices: []string{"nvidia0"}}},
		"one that was made, and never ran": {seen: sharing.Seen{ID: b.newID(), Devices: []string{"nvidia0"}}},
	} {
		var on []int
		for _, u := range b.UnaccountedOn(b.gpus[0].UUID, []sharing.Seen{tt.seen}) {
			on = append(on, u.GI)
			if !strings.Contains(u.Who, tt.seen.ID) {
				t.Errorf("%s: %q does not name it", name, u.Who)
			}
		}
		if !slices.Equal(on, tt.on) {
			t.Errorf("%s: holds instances %v of GPU 0, want %v", name, on, tt.on)
		}
		if others := len(b.UnaccountedOn(b.gpus[1].UUID, []sharing.Seen{tt.seen})) > 0; others != tt.others {
			t.Errorf("%s: holds GPU 1: %t", name, others)
		}
	}
	if list := b.UnaccountedOn("GPU-other",
		[]sharing.Seen{{ID: "x", Running: true, Devices: []string{"nvidia0"}}}); len(list) > 0 {
		t.Errorf("on a GPU that there is not: %+v", list)
	}
}
