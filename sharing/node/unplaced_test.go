// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
)

// A pod that does not fit is reported with what is missing, until it fits or is gone. Each change of the report is
// announced, and nothing else.
func TestUnplacedPodsAreTold(t *testing.T) {
	b := newPodBench(t)
	b.start()
	full := b.run(b.app("full", "gpu:3"))
	ask := b.app("p", "gpu-memory-gib:40")
	try := func(want bool) {
		t.Helper()
		if err := b.ReservePod(t.Context(), []sharing.ContainerRequest{ask}); (err == nil) != want {
			t.Fatal(err)
		}
	}
	announced := func(want bool, do func()) {
		t.Helper()
		before := b.changed.seen()
		do()
		if got := b.changed.seen() != before; got != want {
			t.Errorf("announced: %t, want %t", got, want)
		}
	}
	known := func(want ...string) {
		t.Helper()
		var got []string
		for _, u := range b.LedgerState().Unplaced {
			got = append(got, u.Ref.PodUID)
			if !strings.Contains(u.Reason, "40GiB") {
				t.Errorf("%q", u.Reason)
			}
			if !slices.Contains(b.KnownPods(), u.Ref) {
				t.Errorf("no check whether %s still is", u.Ref.Pod)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("unplaced: %q, want %q", got, want)
		}
	}
	announced(true, func() { try(false) })
	known("uid-p")
	announced(false, func() { try(false) })
	b.Conditions.Set(conditions.CDI, "not written")
	try(false) // for another reason, so nothing changes
	b.Conditions.Set(conditions.CDI, "")
	known("uid-p")
	announced(true, func() { b.PodRemoved("uid-p") })
	known()
	try(false)
	full.remove()
	b.gone("full")
	try(true)
	known()
}
