// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

const s = time.Second

func bad(h sharing.Health) []Part {
	return []Part{{GPU: sharing.GPURef{UUID: "g"}, Health: h, Reason: "r"}}
}

// acts writes them as "tell a".
func text(acts []Act) string {
	names := []string{"tell", "recovered", "ask", "end"}
	var out []string
	for _, a := range acts {
		out = append(out, names[a.Kind]+" "+a.Grant)
	}
	return strings.Join(out, ", ")
}

func TestStep(t *testing.T) {
	evict := Policy{Evict: true, Grace: 30 * s}
	well := Grant{ID: "w", Active: true}
	lone := Grant{ID: "a", Active: true, Faulty: bad(sharing.HealthUnhealthy)}
	worse := lone
	worse.Faulty = bad(sharing.HealthLost)
	recovered := Grant{ID: "a", Active: true}
	pod := []Grant{{ID: "p1", Group: "pod", Active: true, Faulty: bad(sharing.HealthLost)},
		{ID: "p2", Group: "pod", Active: true}, {ID: "p3", Group: "pod"}}
	type step struct {
		now    time.Duration
		policy Policy
		grants []Grant
		want   string
		next   time.Duration
	}
	tests := map[string][]step{
		"no one is faulty": {{0, evict, []Grant{well}, "", 0}},
		"a report is reported once": {{0, Policy{}, []Grant{well, lone}, "tell a", 0},
			{s, Policy{}, []Grant{well, lone}, "", 0}},
		"worse is reported again, and recovers": {{0, Policy{}, []Grant{lone}, "tell a", 0},
			{s, Policy{}, []Grant{worse}, "tell a", 0}, {s, Policy{}, []Grant{lone}, "", 0},
			{2 * s, Policy{}, []Grant{recovered}, "recovered a", 0}, {3 * s, Policy{}, []Grant{recovered}, "", 0}},
		"asked, made to after the grace, and again": {
			{5 * s, evict, []Grant{well, lone}, "tell a, ask a", 35 * s}, {34 * s, evict, []Grant{lone}, "", 35 * s},
			{35 * s, evict, []Grant{lone}, "end a", 45 * s}, {36 * s, evict, []Grant{lone}, "", 45 * s},
			{45 * s, evict, []Grant{lone}, "end a", 55 * s}, {46 * s, evict, nil, "", 0},
		},
		"well within the grace": {{0, evict, []Grant{lone}, "tell a, ask a", 30 * s},
			{29 * s, evict, []Grant{recovered}, "recovered a", 0}, {60 * s, evict, []Grant{recovered}, "", 0}},
		"a policy taken back": {{0, evict, []Grant{lone}, "tell a, ask a", 30 * s},
			{29 * s, Policy{}, []Grant{lone}, "", 0}, {60 * s, evict, []Grant{lone}, "ask a", 90 * s}},
		"a pod's containers": {{0, evict, pod, "tell p1, ask p1, ask p2", 30 * s},
			{30 * s, evict, pod, "end p1", 40 * s}},
		"one that starts later": {{0, evict, pod, "tell p1, ask p1, ask p2", 30 * s},
			{s, evict, []Grant{pod[0], pod[1], {ID: "p3", Group: "pod", Active: true}}, "ask p3", 30 * s}},
		"nothing runs on it": {{0, evict, []Grant{{ID: "b", Group: "x", Faulty: bad(sharing.HealthLost)}},
			"tell b", 30 * s}, {30 * s, evict, []Grant{{ID: "b", Group: "x", Faulty: bad(sharing.HealthLost)}}, "end b",
			40 * s}},
		"an id that comes again": {{0, Policy{}, []Grant{lone}, "tell a", 0}, {s, Policy{}, nil, "", 0},
			{2 * s, Policy{}, []Grant{lone}, "tell a", 0}},
		"two faults of one grant": {{0, Policy{}, []Grant{lone}, "tell a", 0},
			{s, Policy{}, []Grant{{ID: "a", Faulty: append(bad(sharing.HealthUnhealthy),
				Part{GPU: sharing.GPURef{UUID: "h"}, Health: sharing.HealthLost})}}, "tell a", 0}},
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			var k Tracker
			for i, st := range steps {
				acts, next := k.Step(st.now, st.policy, st.grants)
				if got := text(acts); got != st.want || next != st.next {
					t.Fatalf("step %d: %q and next %s, want %q and %s", i, got, next, st.want, st.next)
				}
			}
		})
	}
}

// What the package promises holds for whatever happens.
func TestPromises(t *testing.T) {
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		var k Tracker
		asked := map[string]time.Duration{} // when a group was asked first since it was well
		told := map[string]bool{}
		now := time.Duration(0)
		for range 200 {
			now += time.Duration(rnd.IntN(9)) * s
			p := Policy{Evict: rnd.IntN(10) > 0, Grace: 20 * s}
			byID, sick := map[string]Grant{}, map[string]bool{}
			var grants []Grant
			for i := range 6 {
				g := Grant{ID: fmt.Sprint(i), Active: rnd.IntN(3) > 0}
				if i < 4 {
					g.Group = fmt.Sprintf("pod%d", i/2)
				}
				if now/(40*s)%2 == 0 && i%2 == 0 {
					g.Faulty = bad(sharing.HealthLost)
				}
				byID[g.ID], sick[groupOf(g)] = g, sick[groupOf(g)] || faulty(g)
				grants = append(grants, g)
			}
			for name := range asked {
				if !sick[name] || !p.Evict {
					delete(asked, name)
				}
			}
			acts, _ := k.Step(now, p, grants)
			for _, a := range acts {
				g := byID[a.Grant]
				name := groupOf(g)
				switch {
				case a.Kind != Recovered && !sick[name]:
					t.Fatalf("seed %d at %s: %s, and its group is well", seed, now, text([]Act{a}))
				case a.Kind >= RequestEnd && !p.Evict:
					t.Fatalf("seed %d at %s: %s, and the policy is to report", seed, now, text([]Act{a}))
				case a.Kind == RequestEnd && !g.Active:
					t.Fatalf("seed %d at %s: %s, and nothing runs on it", seed, now, text([]Act{a}))
				}
				if a.Kind == Report {
					if told[a.Grant] {
						t.Fatalf("seed %d at %s: %s was reported twice", seed, now, a.Grant)
					}
					told[a.Grant] = true
				}
				if a.Kind == Recovered {
					told[a.Grant] = false
				}
			}
			for _, g := range grants {
				if faulty(g) != told[g.ID] {
					t.Fatalf("seed %d at %s: grant %s is faulty: %v, reported: %v", seed, now, g.ID, faulty(g),
						told[g.ID])
				}
			}
			for name, is := range sick {
				if _, ok := asked[name]; is && p.Evict && !ok {
					asked[name] = now
				}
			}
			for _, a := range acts {
				if since := asked[groupOf(byID[a.Grant])]; a.Kind == End && now-since < p.Grace {
					t.Fatalf("seed %d at %s: %s, %s after it was asked", seed, now, text([]Act{a}), now-since)
				}
			}
		}
	}
}
