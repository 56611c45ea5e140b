// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

func TestVictims(t *testing.T) {
	// GPU 0 holds four of 19, GPU 1 one of 50 and one of 20.
	holds := []hold{
		{uid: "a", gpu: 0, memory: 19}, {uid: "b", gpu: 0, memory: 19}, {uid: "c", gpu: 0, memory: 19},
		{uid: "d", gpu: 0, memory: 19},
		{uid: "e", gpu: 1, memory: 50}, {uid: "f", gpu: 1, memory: 20},
	}
	all := func(change func(*scheduler.Victim)) []scheduler.Victim {
		var out []scheduler.Victim
		for _, h := range holds {
			v := scheduler.Victim{UID: h.uid, Priority: 1}
			if change != nil {
				change(&v)
			}
			out = append(out, v)
		}
		return out
	}
	tests := []struct {
		name   string
		ask    map[string]string
		change func(*scheduler.Victim)
		want   []string
	}{
		{name: "one is enough", ask: memory(40), want: []string{"e"}},
		{name: "the cheapest one", ask: memory(20), change: func(v *scheduler.Victim) {
			if v.UID != "c" {
				v.Cost = 5
			}
		}, want: []string{"c"}},
		{name: "the lowest priority before the cost", ask: memory(20), change: func(v *scheduler.Victim) {
			v.Priority = 2
			if v.UID == "b" {
				v.Priority, v.Cost = 1, 100
			}
		}, want: []string{"b"}},
		{name: "two that are not protected before one that is", ask: memory(40),
			change: func(v *scheduler.Victim) { v.Protected = v.UID == "e" }, want: []string{"a", "b"}},
		{name: "a whole GPU, where fewer lie", ask: whole(1), want: []string{"e", "f"}},
		{name: "both GPUs", ask: whole(2), want: []string{"a", "b", "c", "d", "e", "f"}},
		{name: "equals do not give way", ask: memory(40), change: func(v *scheduler.Victim) { v.Priority = 10 }},
		{name: "one that may not be touched", ask: whole(1), change: func(v *scheduler.Victim) {
			if v.UID == "f" {
				v.Priority = 10
			}
		}, want: []string{"a", "b", "c", "d"}},
		{name: "nothing helps", ask: memory(100)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := clusterStateOf(1, 2)
			b.Report("n00", statusOf(0, 2, holds...))
			p := podOf("p", tt.ask)
			p.Priority = 10
			var got []string
			for _, v := range b.Victims(want(t, p), "n00", all(tt.change), noon()) {
				got = append(got, v.UID)
			}
			slices.Sort(got)
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("victims (-want +got):\n%s", d)
			}
		})
	}
}

// No set costs less than the one that is found, and none of it can be spared.
func TestVictimsAreTheFewest(t *testing.T) {
	r := rand.New(rand.NewPCG(*seed, 1))
	for range 60 {
		var holds []hold
		var candidates []scheduler.Victim
		for g := range 2 {
			for left := 79; left > 0; {
				size := min(left, 12+r.IntN(40))
				uid := "v" + strconv.Itoa(len(holds))
				holds = append(holds, hold{uid: uid, gpu: g, memory: int64(size)})
				candidates = append(candidates, scheduler.Victim{UID: uid, Priority: int32(r.IntN(3)),
					Cost: int64(r.IntN(9)), Protected: r.IntN(4) == 0})
				left -= size
			}
		}
		b := clusterStateOf(1, 2)
		b.Report("n00", statusOf(0, 2, holds...))
		p := podOf("p", memory(10+r.IntN(70)))
		p.Priority = 5
		w := want(t, p)
		got := b.Victims(w, "n00", candidates, noon())
		var best []scheduler.Victim
		for mask := 1; mask < 1<<len(candidates); mask++ {
			var set []scheduler.Victim
			var without []string
			for i, v := range candidates {
				if mask>>i&1 == 1 {
					set, without = append(set, v), append(without, v.UID)
				}
			}
			if (best == nil || scheduler.Cheaper(set, best) < 0) &&
				b.FitIf(w, "n00", scheduler.WhatIf{Without: without}, noon()).Reason == scheduler.Fits {
				best = set
			}
		}
		if (got == nil) != (best == nil) || got != nil && scheduler.Cheaper(best, got) < 0 {
			t.Fatalf("%v for %v, and %v is cheaper; of %v", got, w.Containers[0].Request, best, candidates)
		}
	}
}
