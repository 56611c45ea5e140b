// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

// Gangs of equal pods on four nodes of two GPUs each, in racks of two, of which some is held already.
func TestGang(t *testing.T) {
	hosts := []scheduler.Domain{{"n00", []string{"n00"}}, {"n01", []string{"n01"}}, {"n02", []string{"n02"}}, {"n03", []string{"n03"}}}
	racks := []scheduler.Domain{{"a", []string{"n00", "n01"}}, {"b", []string{"n02", "n03"}}}
	for name, tc := range map[string]struct {
		pods   int
		limits map[string]string
		// held is the memory that is held on the first GPU of each node.
		held [4]uint64
		want []string
		text string
	}{
		"on one node, the fullest that has room": {pods: 2, limits: memory(70), held: [4]uint64{10, 5, 0, 8}, want: []string{"n03", "n01", "n02", "a", "b"}},
		"several on one GPU":                     {pods: 4, limits: memory(35), held: [4]uint64{0, 20, 20, 20}, want: []string{"n00", "b", "a"}},
		"in one rack":                            {pods: 4, limits: memory(70), held: [4]uint64{60, 0, 0, 0}, want: []string{"b"}},
		"too many for one rack":                  {pods: 5, limits: memory(70)},
		"too many":                               {pods: 9, limits: memory(70), text: "9 pods need room at once, and there is room for 8 of them"},
		"none fits at all":                       {pods: 2, limits: memory(100), text: "needs 100GiB on one GPU: 4 nodes have GPUs that are too small"},
		"whole nodes":                            {pods: 2, limits: whole(2), held: [4]uint64{1, 0, 0, 0}, want: []string{"b"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := booksOf(4, 2)
			for n, gib := range tc.held {
				if gib > 0 {
					b.Report(nodeName(n), statusOf(n, 2, hold{uid: fmt.Sprint("held", n), memory: gib}))
				}
			}
			var wants []scheduler.Want
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
	b := booksOf(2, 2)
	var wants []scheduler.Want
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
			t.Fatalf("no room for %s", w.Name)
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
	b := booksOf(1, 2)
	before := b.Room("n00", noon())
	if b.Room("n00", noon()).More(before) {
		t.Error("the same is more")
	}
	if b.Room("n00", noon().Add(time.Hour)).More(before) {
		t.Error("a node that is not heard from has more room")
	}
	if !before.More(b.Room("n00", noon().Add(time.Hour))) {
		t.Error("a node that is heard from again has no more room")
	}
	b.Report("n00", statusOf(0, 2, hold{uid: "x", gpu: 1, memory: 10}))
	after := b.Room("n00", noon())
	if after.More(before) || !before.More(after) {
		t.Error("less is more")
	}
	b.Report("n00", statusOf(0, 2, hold{uid: "y", gpu: 0, memory: 10}))
	if !b.Room("n00", noon()).More(after) {
		t.Error("room that moved to another GPU is not seen")
	}
}
