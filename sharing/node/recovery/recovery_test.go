// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package recovery_test

import (
	"testing"

	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/sharing/node/recovery"
)

// What is missing stops grants. A process counts as unmanaged only when everything that may have a grant is known.
func TestFacts(t *testing.T) {
	for name, c := range map[string]struct {
		state           recovery.Facts
		missing         int
		known, complete bool
	}{
		"at the start":                        {recovery.Facts{}, 1, false, false},
		"no container runtime":                {recovery.Facts{Restored: true}, 0, true, true},
		"no container runtime, no checkpoint": {recovery.Facts{Restored: true, Unrecorded: true}, 0, true, true},
		"no container runtime, damaged": {recovery.Facts{Restored: true, Unrecorded: true, Damaged: true}, 0,
			true, false},
		"before the list": {recovery.Facts{Restored: true, Expected: true}, 0, false, false},
		"before the list, no checkpoint": {recovery.Facts{Restored: true, Expected: true, Unrecorded: true}, 1,
			false, false},
		"listed": {recovery.Facts{Restored: true, Expected: true, Listed: true}, 0, true,
			true},
		"listed, no checkpoint": {recovery.Facts{Restored: true, Expected: true, Listed: true,
			Unrecorded: true, Damaged: true}, 0, true, true},
		"listed before the checkpoint was read": {recovery.Facts{Expected: true, Listed: true}, 1, false, false},
		"a cgroup without a grant": {recovery.Facts{Restored: true, Orphans: make([]cgroup.Group, 1)}, 0,
			true, false},
		"a container without a grant": {recovery.Facts{Restored: true, Expected: true, Listed: true, Unaccounted: 1}, 0,
			true, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.state.Missing(); len(got) != c.missing {
				t.Errorf("missing %q", got)
			}
			if known, complete := c.state.ContainersKnown(), c.state.Complete(); known != c.known ||
				complete != c.complete {
				t.Errorf("known %v, complete %v", known, complete)
			}
		})
	}
}
