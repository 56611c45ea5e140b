// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

// linkedNode returns GPUs on two NUMA nodes with these NVLink connections.
func linkedNode(n int, links ...[2]int) []GPUState {
	gpus := make([]GPUState, n)
	for i := range gpus {
		gpus[i] = free(i, 80*sharing.GiB)
		gpus[i].GPU.NUMA = i / max(1, n/2)
	}
	for _, l := range links {
		a, b := &gpus[l[0]].GPU, &gpus[l[1]].GPU
		a.NVLinks, b.NVLinks = append(a.NVLinks, b.UUID), append(b.NVLinks, a.UUID)
	}
	return gpus
}

// The topologies that are built.
func topologies() map[string][]GPUState {
	var mesh, islands [][2]int
	for i := range 8 {
		for j := range i {
			mesh = append(mesh, [2]int{j, i})
			if i/4 == j/4 {
				islands = append(islands, [2]int{j, i})
			}
		}
	}
	cube := [][2]int{{0, 1}, {0, 2}, {0, 3}, {0, 4}, {1, 2}, {1, 3}, {1, 5}, {2, 3}, {2, 6}, {3, 7}, {4, 5}, {4, 6},
		{4, 7}, {5, 6}, {5, 7}, {6, 7}}
	mixed := linkedNode(6, [2]int{0, 1}, [2]int{2, 3})
	for _, i := range []int{4, 5} {
		mixed[i].GPU.Memory, mixed[i].FreeMemory = 16*sharing.GiB, 16*sharing.GiB
	}
	return map[string][]GPUState{
		"no links": linkedNode(8), "pairs": linkedNode(8, [2]int{0, 1}, [2]int{2, 3}, [2]int{4, 5}, [2]int{6, 7}),
		"islands": linkedNode(8, islands...), "mesh": linkedNode(8, mesh...), "cube mesh": linkedNode(8, cube...),
		"pairs across": linkedNode(4, [2]int{0, 2}, [2]int{1, 3}), "mixed": mixed,
	}
}

func TestChooseWhole(t *testing.T) {
	t.Parallel()
	tests := []struct {
		node string
		take string // indexes that are in use
		n    int
		want string
	}{
		{"no links", "", 1, "0"},
		{"no links", "0", 1, "1"},
		{"no links", "4 5", 1, "6"},
		{"no links", "0 1", 2, "2 3"},
		{"no links", "0 1 2", 2, "4 5"},
		{"no links", "", 4, "0 1 2 3"},
		{"no links", "0", 4, "4 5 6 7"},
		{"no links", "", 8, "0 1 2 3 4 5 6 7"},
		{"pairs", "", 1, "0"},
		{"pairs", "2", 1, "3"},
		{"pairs", "0 2", 2, "4 5"},
		{"pairs", "0 2 4", 2, "6 7"},
		{"pairs", "0 2", 3, "4 5 6"},
		{"islands", "0", 3, "1 2 3"},
		{"islands", "0 1", 2, "2 3"},
		{"islands", "0", 4, "4 5 6 7"},
		{"mesh", "5", 2, "4 6"},
		{"cube mesh", "", 4, "0 1 2 3"},
		{"cube mesh", "1", 4, "4 5 6 7"},
		{"pairs across", "", 2, "0 2"},
		{"pairs across", "0", 2, "1 3"},
		{"mixed", "", 1, "4"},
		{"mixed", "", 2, "0 1"},
		{"mixed", "0 2", 2, "4 5"},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%s, %d next to %q", tt.node, tt.n, tt.take), func(t *testing.T) {
			t.Parallel()
			gpus := topologies()[tt.node]
			for i := range gpus {
				if slices.Contains(strings.Fields(tt.take), strconv.Itoa(i)) {
					gpus[i].InUse, gpus[i].FreeMemory = true, gpus[i].FreeMemory-sharing.GiB
				}
			}
			p, err := Choose(gpus, sharing.Request{Kind: sharing.KindWhole, GPUs: tt.n})
			if got := indexes(gpus, p); err != nil || got != tt.want {
				t.Errorf("placed on %q (%v), want %q", got, err, tt.want)
			}
		})
	}
}

// Two pairs are better than a pair and two that are near.
func TestWholeLooksAhead(t *testing.T) {
	t.Parallel()
	gpus := slices.Delete(topologies()["pairs"], 3, 4)
	if got := indexSet(chooseWhole(gpus[:5], 4)); !slices.Equal(got, []int{0, 1, 4, 5}) {
		t.Errorf("4 of two pairs and one is %v", got)
	}
}

func indexSet(gpus []GPUState) []int {
	var out []int
	for _, g := range gpus {
		out = append(out, g.GPU.Index)
	}
	return out
}

// On a node that is too big to look at every set, islands of four are still found.
func TestGrown(t *testing.T) {
	t.Parallel()
	var links [][2]int
	for i := range 32 {
		for j := range i {
			if i/4 == j/4 {
				links = append(links, [2]int{j, i})
			}
		}
	}
	gpus := linkedNode(32, links...)
	for n, want := range map[int][]int{1: {2}, 2: {2, 3}, 4: {4, 5, 6, 7}, 8: {16, 17, 18, 19, 20, 21, 22, 23}} {
		if got := indexSet(chooseWhole(gpus[2:], n)); !slices.Equal(got, want) {
			t.Errorf("%d of 30: %v, want %v", n, got, want)
		}
	}
}

// If both are possible, a grown set is never better than the best of all sets: that would be a fault of the search. It
// finds the islands and the mesh.
func TestGrownAgainstAll(t *testing.T) {
	t.Parallel()
	for name, gpus := range topologies() {
		top := newTopology(gpus)
		for n := 1; n < len(gpus); n++ {
			var all, grown rank
			keep := func(best *rank) func([]int) {
				return func(set []int) {
					if r := top.rank(slices.Clone(set)); best.members == nil || r.compare(*best) < 0 {
						*best = r
					}
				}
			}
			top.each(nil, n, keep(&all))
			top.grown(n, keep(&grown))
			if c := grown.compare(all); c < 0 || c > 0 && (name == "islands" || name == "mesh") {
				t.Errorf("%s, %d: grown %+v, of all %+v", name, n, grown, all)
			}
		}
	}
}
