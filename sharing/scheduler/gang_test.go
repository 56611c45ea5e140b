// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

// Gangs of equal pods on four nodes of two GPUs each, in racks of two, of which some is held already.
func TestGang(t *testing.T) {
	hosts := []scheduler.Domain{{"n00", []string{"n00"}}, {"n01", []string{"n01"}}, {"n02", []string{"n02"}},
		{"n03", []string{"n03"}}}
	racks := []scheduler.Domain{{"a", []string{"n00", "n01"}}, {"b", []string{"n02", "n03"}}}
	for name, tc := range map[string]struct {
		pods   int
		limits map[string]string
		// held is the memory that is held on the first GPU of each node.
		held [4]int64
		want []string
		text string
	}{
		"on one node, the fullest that has room": {pods: 2, limits: memory(70), held: [4]int64{10, 5, 0, 8},
			want: []string{"n03", "n01", "n02", "a", "b"}},
		"several on one GPU": {pods: 4, limits: memory(35), held: [4]int64{0, 20, 20, 20},
			want: []string{"n00", "b", "a"}},
		"in one rack":           {pods: 4, limits: memory(70), held: [4]int64{60, 0, 0, 0}, want: []string{"b"}},
		"too many for one rack": {pods: 5, limits: memory(70)},
		"too many": {pods: 9, limits: memory(70),
			text: "9 pods must fit at once, and 8 of them fit"},
		"none fits at all": {pods: 2, limits: memory(100),
			text: "needs 100GiB on one GPU: 4 nodes have GPUs that are too small"},
		"whole nodes": {pods: 2, limits: whole(2), held: [4]int64{1, 0, 0, 0}, want: []string{"b"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := clusterStateOf(4, 2)
			for n, gib := range tc.held {
				if gib > 0 {
					b.Report(nodeName(n), statusOf(n, 2, hold{uid: fmt.Sprint("held", n), memory: gib}))
				}
			}
			var wants []scheduler.PodRequest
			for i := range tc.pods {
				wants = append(wants, want(t, podOf(fmt.Sprint("p", i), tc.limits)))
			}
			var got []string
			for _, d := range b.Gang(wants, [][]scheduler.Domain{hosts, racks}, 8, noon()) {
				got = append(got, d.Name)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Error(d)
			}
			if text := b.ExplainGang(wants, noon()); text != tc.text {
				t.Errorf("%q", text)
			}
			if got := b.Gang(wants, [][]scheduler.Domain{hosts, racks}, 1, noon()); len(got) > 1 {
				t.Errorf("%d of one at most", len(got))
			}
			if got := b.Gang(wants, [][]scheduler.Domain{hosts, racks}, 8, noon().Add(time.Hour)); len(got) > 0 {
				t.Errorf("on nodes that are not heard from: %v", got)
			}
		})
	}
}

// What Gang finds can be taken pod by pod, and it takes nothing itself.
func TestGangTakesNothing(t *testing.T) {
	b := clusterStateOf(2, 2)
	var wants []scheduler.PodRequest
	for i := range 8 {
		wants = append(wants, want(t, podOf(fmt.Sprint("p", i), memory(30))))
	}
	both := [][]scheduler.Domain{{{"both", []string{"n00", "n01"}}}}
	for range 2 {
		if got := b.Gang(wants, both, 8, noon()); len(got) != 1 {
			t.Fatalf("%v", got)
		}
	}
	for _, w := range wants {
		fitting := b.Fitting(w, noon())
		if len(fitting) == 0 {
			t.Fatalf("not enough free for %s", w.Name)
		}
		if _, err := b.Reserve(w, fitting[0], noon()); err != nil {
			t.Fatal(err)
		}
	}
	if text := b.ExplainGang(wants[:1], noon()); !strings.Contains(text, "best of 2 nodes has 19GiB free") {
		t.Errorf("%q", text)
	}
}

// There is more room where anything was given back, and only there.
func TestRoomMore(t *testing.T) {
	b := clusterStateOf(1, 2)
	before := b.Capacity("n00", noon())
	if b.Capacity("n00", noon()).More(before) {
		t.Error("the same is more")
	}
	if b.Capacity("n00", noon().Add(time.Hour)).More(before) {
		t.Error("a node that is not heard from has more room")
	}
	if !before.More(b.Capacity("n00", noon().Add(time.Hour))) {
		t.Error("a node that is heard from again has no more room")
	}
	b.Report("n00", statusOf(0, 2, hold{uid: "x", gpu: 1, memory: 10}))
	after := b.Capacity("n00", noon())
	if after.More(before) || !before.More(after) {
		t.Error("less is more")
	}
	b.Report("n00", statusOf(0, 2, hold{uid: "y", gpu: 0, memory: 10}))
	if !b.Capacity("n00", noon()).More(after) {
		t.Error("room that moved to another GPU is not seen")
	}
}

// The pods that give way to a gang are, of all sets that free enough capacity for it, those with the least toll. The
// test compares every set, on small random clusters.
func TestGangVictimsAreTheLeast(t *testing.T) {
	random := rand.New(rand.NewPCG(*seed, 2))
	names := []string{"n00", "n01"}
	ways, none := 0, 0
	for range 120 {
		b := clusterStateOf(2, 2)
		var candidates []scheduler.Victim
		for n := range names {
			var holds []hold
			for g := range 2 {
				for free := 79; free > 20 && len(candidates) < 6 && random.IntN(4) > 0; {
					size := 10 + random.IntN(free-10)
					free -= size
					v := scheduler.Victim{UID: fmt.Sprint("held", len(candidates)), Priority: int32(random.IntN(3)),
						Protected: random.IntN(4) == 0, Cost: int64(random.IntN(5))}
					candidates = append(candidates, v)
					holds = append(holds, hold{uid: v.UID, gpu: g, memory: int64(size)})
				}
			}
			b.Report(names[n], statusOf(n, 2, holds...))
			for _, h := range holds {
				p := podOf(h.uid, memory(int(h.memory)))
				p.Node = names[n]
				b.Pod(p, want(t, p), noon())
			}
		}
		var wants []scheduler.PodRequest
		for i := range 1 + random.IntN(3) {
			p := podOf(fmt.Sprint("p", i), memory(20+random.IntN(59)))
			p.Priority = 2
			wants = append(wants, want(t, p))
		}
		if b.ExplainGang(wants, noon()) == "" {
			continue // it has room
		}
		var least []scheduler.Victim
		for set := 1; set < 1<<len(candidates); set++ {
			var victims []scheduler.Victim
			var uids []string
			for i, v := range candidates {
				if set&(1<<i) != 0 && v.Priority < 2 {
					victims, uids = append(victims, v), append(uids, v.UID)
				}
			}
			if len(victims) == 0 || least != nil && scheduler.Cheaper(victims, least) >= 0 {
				continue
			}
			if b.Without(uids); b.ExplainGang(wants, noon()) == "" {
				least = victims
			}
		}
		b.Without(nil)
		got, coming := b.GangVictims(wants, names, candidates, nil, noon())
		if coming || (len(got) == 0) != (least == nil) || least != nil && scheduler.Cheaper(got, least) != 0 {
			t.Fatalf("%v of %v give way (%t), least are %v", got, candidates, coming, least)
		}
		if least == nil {
			none++
		} else {
			ways++
		}
	}
	if ways < 20 || none < 5 {
		t.Errorf("%d with a way, %d without: too few to show anything", ways, none)
	}
}

// If pods that already end free enough, no other pod is evicted.
func TestGangVictimsThatGoAlready(t *testing.T) {
	b := clusterStateOf(1, 2)
	b.Report("n00", statusOf(0, 2, hold{uid: "a", gpu: 0, memory: 60}, hold{uid: "b", gpu: 1, memory: 60}))
	var candidates []scheduler.Victim
	for _, uid := range []string{"a", "b"} {
		p := podOf(uid, memory(60))
		p.Node = "n00"
		b.Pod(p, want(t, p), noon())
		candidates = append(candidates, scheduler.Victim{UID: uid})
	}
	p := podOf("p", memory(70))
	p.Priority = 1
	gang := []scheduler.PodRequest{want(t, p)}
	if got, coming := b.GangVictims(gang, []string{"n00"}, candidates, []string{"b"}, noon()); len(got) > 0 || !coming {
		t.Errorf("%v give way, %t", got, coming)
	}
	b.PodRemoved("a", noon())
	if got, coming := b.GangVictims(gang, []string{"n00"}, candidates, nil, noon()); len(got) > 0 || !coming {
		t.Errorf("%v give way, %t", got, coming)
	}
	if text := b.ExplainGang(gang, noon()); text == "" {
		t.Error("there is room before they are gone")
	}
}
