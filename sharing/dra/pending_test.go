// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"slices"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

// offers are the devices of one GPU in MIG mode: the whole GPU, and instances at the slices 0, 1, and 0 with 1.
func offers() []Offered {
	slice := func(at ...string) (out []Counter) {
		for _, s := range at {
			out = append(out, Counter{counterSlice + s, 1})
		}
		return out
	}
	device := func(name string, kind Kind, profile string, consumes []Counter) Offered {
		return Offered{Node: "n", Device: name, GPU: "GPU-A", Kind: kind, Profile: profile, Consumes: consumes,
			Counters: slice("0", "1")}
	}
	return []Offered{device("whole", KindWhole, "", slice("0", "1")),
		device("mig-0", KindMIG, "1g.10gb+me", slice("0")), device("mig-1", KindMIG, "1g.10gb+me", slice("1")),
		device("mig-01", KindMIG, "2g.20gb", slice("0", "1"))}
}

// TestAskForInstances: a claim for a MIG instance gets no whole GPU, and no instance that overlaps another claim's.
func TestAskForInstances(t *testing.T) {
	want := func(request string, kind Kind, profile string, count int) Wanted {
		return Wanted{Claim: "c", Request: request, Kind: kind, Profile: profile, Count: count}
	}
	for name, tc := range map[string]struct {
		wanted []Wanted
		taken  string
		reason string // empty if it fits
	}{
		"any instance": {wanted: []Wanted{want("a", KindMIG, "", 1)}},
		"of a profile": {wanted: []Wanted{want("a", KindMIG, "1g.10gb.me", 2)}},
		"too many": {wanted: []Wanted{want("a", KindMIG, "1g.10gb.me", 3)},
			reason: "2 of 3 GPUs for 3 times"},
		"no such profile": {wanted: []Wanted{want("a", KindMIG, "7g.80gb", 1)}, reason: "a MIG instance 7g.80gb"},
		"next to a claim": {wanted: []Wanted{want("a", KindMIG, "1g.10gb.me", 1)}, taken: "mig-0"},
		"over a claim": {wanted: []Wanted{want("a", KindMIG, "2g.20gb", 1)}, taken: "mig-1",
			reason: "other claims use 1 of its instances"},
		"of a whole GPU's claim": {wanted: []Wanted{want("a", KindMIG, "", 1)}, taken: "whole",
			reason: "other claims use 3 of its instances"},
		"whole with an instance": {wanted: []Wanted{want("a", KindWhole, "", 1)}, taken: "mig-0",
			reason: "other claims use 1 GPUs"},
		"whole, then an instance": {wanted: []Wanted{want("a", KindWhole, "", 1), want("b", KindMIG, "", 1)},
			reason: "request b"},
		"a failed alternative keeps nothing": {wanted: []Wanted{want("a/three", KindMIG, "1g.10gb.me", 3),
			want("a/large", KindMIG, "2g.20gb", 1)}},
	} {
		devices := offers()
		for i := range devices {
			if devices[i].Device == tc.taken {
				devices[i].Users++
			}
		}
		got := Ask(tc.wanted, devices)
		if len(got) != 1 || got[0].Fits != (tc.reason == "") || !strings.Contains(got[0].Reason, tc.reason) {
			t.Errorf("%s: %+v, want reason %q", name, got, tc.reason)
		}
	}
}

// TestAskForShares: claims share the memory of a GPU, and exclude its whole device also without counters.
func TestAskForShares(t *testing.T) {
	devices := []Offered{{Node: "n", Device: "s", GPU: "GPU-A", Memory: 30 * sharing.GiB, Percent: 100, Users: 1,
		TakenMemory: 10 * sharing.GiB}, {Node: "n", Device: "w", GPU: "GPU-A", Kind: KindWhole}}
	share := Wanted{Claim: "c", Request: "a", Count: 1, Memory: 20 * sharing.GiB}
	if got := Ask([]Wanted{share}, devices); !got[0].Fits || !slices.Equal(got[0].GPUs["c/a"], []string{"GPU-A"}) {
		t.Errorf("%+v", got)
	}
	if got := Ask([]Wanted{{Claim: "c", Request: "a", Kind: KindWhole, Count: 1}}, devices); got[0].Fits {
		t.Errorf("%+v", got)
	}
}
