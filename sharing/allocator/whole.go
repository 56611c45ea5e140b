// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"cmp"
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
)

// Whole GPUs are chosen as a set: the one with the most NVLink connections inside, then on the fewest NUMA
// nodes, then the one that breaks least (few NVLink connections to GPUs that stay free, NUMA nodes with
// little else free), then of small GPUs before large ones, then by index.
//
// Sets are grown from each free GPU in turn by the GPU that is best next, and the best set wins: all sets
// of a big node would be too many to look at. On the topologies that are built (pairs, islands, full mesh,
// cube mesh) the grown set is as good as the best of all; a test compares them.

// topology is what the choice needs to know of the free GPUs, which it names by their position.
type topology struct {
	gpus   []GPUState
	linked [][]bool
	numa   []int // of each GPU; one whose node is not known is on a node of its own kind, -1
	inNUMA map[int]int
}

func newTopology(gpus []GPUState) topology {
	t := topology{gpus: gpus, linked: make([][]bool, len(gpus)), numa: make([]int, len(gpus)), inNUMA: map[int]int{}}
	at := make(map[sharing.GPUID]int, len(gpus))
	for i, g := range gpus {
		at[g.GPU.UUID] = i
		t.linked[i] = make([]bool, len(gpus))
		t.numa[i] = g.GPU.NUMA
		t.inNUMA[g.GPU.NUMA]++
	}
	for i, g := range gpus {
		for _, peer := range g.GPU.NVLinks {
			if j, ok := at[peer]; ok && j != i {
				t.linked[i][j], t.linked[j][i] = true, true
			}
		}
	}
	return t
}

// rank orders sets; less is better.
type rank struct {
	links   int // connections inside, negated
	nodes   int // NUMA nodes touched
	broken  int // connections to free GPUs outside
	beside  int // free GPUs on the NUMA nodes touched
	memory  sharing.Bytes
	members []int // positions, ascending
}

func (a rank) compare(b rank) int {
	return cmp.Or(cmp.Compare(a.links, b.links), cmp.Compare(a.nodes, b.nodes), cmp.Compare(a.broken, b.broken),
		cmp.Compare(a.beside, b.beside), cmp.Compare(a.memory, b.memory), slices.Compare(a.members, b.members))
}

// rank reckons the rank of a set.
func (t topology) rank(set []int) rank {
	r := rank{members: slices.Sorted(slices.Values(set))}
	in := make([]bool, len(t.gpus))
	for _, i := range set {
		in[i] = true
	}
	seen := map[int]bool{}
	for _, i := range set {
		for j, linked := range t.linked[i] {
			switch {
			case linked && !in[j]:
				r.broken++
			case linked && i < j:
				r.links--
			}
		}
		if n := t.numa[i]; !seen[n] {
			seen[n] = true
			r.nodes++
			r.beside += t.inNUMA[n]
		}
		r.memory += t.gpus[i].GPU.Usable() / sharing.MiB // in MiB: a sum of 64 does not wrap
	}
	return r
}

// chooseWhole returns the best n of the free GPUs, which come by index.
func chooseWhole(free []GPUState, n int) []GPUState {
	if n == len(free) {
		return slices.Clone(free)
	}
	t := newTopology(free)
	var best rank
	for seed := range free {
		set := []int{seed}
		for len(set) < n {
			set = append(set, t.next(set))
		}
		if r := t.rank(set); best.members == nil || r.compare(best) < 0 {
			best = r
		}
	}
	chosen := make([]GPUState, 0, n)
	for _, i := range best.members {
		chosen = append(chosen, free[i])
	}
	return chosen
}

// next returns the GPU that makes the best set with those in set.
func (t topology) next(set []int) int {
	var best rank
	pick := -1
	for i := range t.gpus {
		if slices.Contains(set, i) {
			continue
		}
		if r := t.rank(append(slices.Clone(set), i)); pick < 0 || r.compare(best) < 0 {
			best, pick = r, i
		}
	}
	return pick
}
