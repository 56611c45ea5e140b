// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/faults"
)

// A pod that need not end any more is forgotten, except one that was forced to. Each is forgotten some time after its
// end.
func TestEndingIsForgotten(t *testing.T) {
	part := []faults.Part{{GPU: sharing.GPURef{UUID: "GPU-0"}, Health: sharing.HealthLost}}
	sick, well := faults.Grant{ID: "1", Group: "pod", Faulty: part}, faults.Grant{ID: "1", Group: "pod"}
	evict, start := faults.Policy{Evict: true}, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	type look struct {
		p      faults.Policy
		grants []faults.Grant
		after  time.Duration
		there  bool
	}
	for name, tc := range map[string]struct {
		made  bool
		looks []look
	}{
		"faulty": {false, []look{{evict, []faults.Grant{sick}, 0, true},
			{evict, []faults.Grant{sick}, time.Hour, true}}},
		"well again": {false, []look{{evict, []faults.Grant{sick}, 0, true},
			{evict, []faults.Grant{well}, time.Second, false}}},
		"well again, and made to": {true, []look{{evict, []faults.Grant{well}, time.Hour, true},
			{evict, nil, time.Hour, true}, {evict, nil, time.Hour + endedFor + 1, false}}},
		"the policy was taken back": {false, []look{{faults.Policy{}, []faults.Grant{sick}, 0, false}}},
		"ended": {false, []look{{evict, nil, 0, true}, {evict, nil, endedFor, true},
			{evict, nil, endedFor + 1, false}}},
		"ended, another is there": {false,
			[]look{{evict, []faults.Grant{{ID: "2", Group: "other", Faulty: part}}, 0, true},
				{evict, []faults.Grant{{ID: "2", Group: "other"}}, endedFor + 1, false}}},
	} {
		t.Run(name, func(t *testing.T) {
			e := NewEndings(func() {})
			e.byPod["pod"] = Ending{Since: start, forced: tc.made}
			for i, l := range tc.looks {
				e.keep(l.p, l.grants, start.Add(l.after))
				if _, there := e.byPod["pod"]; there != l.there {
					t.Fatalf("sample %d: reported: %t, want %t", i, there, l.there)
				}
			}
		})
	}
}
