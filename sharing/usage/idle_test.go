// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"slices"
	"testing"
	"time"
)

func TestIdler(t *testing.T) {
	const h = time.Hour
	evict := IdlePolicy{After: h, Evict: true, Except: []string{"research"}}
	pod := func(a, b time.Duration) []IdleCandidate {
		return []IdleCandidate{{Grant: "p1", Group: "p", Namespace: "team", Idle: a},
			{Grant: "p2", Group: "p", Namespace: "team", Idle: b}}
	}
	type step struct {
		now    time.Duration
		policy IdlePolicy
		all    []IdleCandidate
		acts   []Sat
		idle   []string
	}
	tests := map[string][]step{
		"no policy":             {{0, IdlePolicy{}, pod(9*h, 9*h), nil, nil}},
		"not long enough":       {{0, evict, pod(9*h, h-1), nil, nil}},
		"all containers of it":  {{0, evict, pod(2*h, h), []Sat{{"p1", h, true, true}}, []string{"p1"}}},
		"an exempted namespace": {{0, evict, []IdleCandidate{{"a", "g", "research", 9 * h}}, nil, nil}},
		"a process of no pod is reported and not evicted": {
			{0, evict, []IdleCandidate{{"a", "", "", h}}, []Sat{{"a", h, true, false}}, []string{"a"}},
			{5 * h, evict, []IdleCandidate{{"a", "", "", 6 * h}}, nil, []string{"a"}},
		},
		"a report is reported once, and again after work": {
			{0, IdlePolicy{After: h}, pod(h, h), []Sat{{"p1", h, true, false}}, []string{"p1"}},
			{h, IdlePolicy{After: h}, pod(2*h, 2*h), nil, []string{"p1"}},
			{2 * h, IdlePolicy{After: h}, pod(0, 0), nil, nil}, {3 * h, IdlePolicy{After: h}, pod(h, h),
				[]Sat{{"p1", h, true, false}}, []string{"p1"}},
		},
		"an eviction is requested again": {
			{0, evict, pod(h, h), []Sat{{"p1", h, true, true}}, []string{"p1"}},
			{Again - 1, evict, pod(h, h), nil, []string{"p1"}},
			{Again, evict, pod(h, h), []Sat{{"p1", h, false, true}}, []string{"p1"}},
		},
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			var k IdleTracker
			for i, st := range steps {
				if acts, idle := k.Step(st.now, st.policy, st.all); !slices.Equal(acts, st.acts) ||
					!slices.Equal(idle, st.idle) {
					t.Fatalf("step %d: %+v and %v, want %+v and %v", i, acts, idle, st.acts, st.idle)
				}
			}
		})
	}
}
