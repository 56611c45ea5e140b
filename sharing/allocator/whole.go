// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"cmp"
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
)

// The set of whole GPUs is chosen by these rules, in order:
//   - the most NVLink connections inside
//   - the fewest NUMA nodes
//   - the least damage: few NVLink connections to GPUs that stay free, NUMA nodes with little else free
//   - small GPUs before large ones
//   - the lowest indexes
//
// With up to maxExact free GPUs every set is compared. With more, the sets would be too many. Then a set grows from
// each free GPU by the next best GPU, and the best of these wins. That may miss a better one.

// maxExact bounds the work to the 12870 sets of 8 out of 16.
const maxExact = 16

// topology is what the choice needs to know of the free GPUs, which it names by their position.
type topology struct {
	gpus   []GPUState
	linked [][]bool
	numa   []int // of each GPU; -1 for an unknown node, which then counts as a separate one
	inNUMA map[int]int
}

func newTopology(gpus []GPUState) topology {
	t := topology{gpus: gpus, linked: make([][]bool, len(gpus)), numa: make([]int, len(gpus)), inNUMA: map[int]int{}}
	at := make(map[sharing.GPURef]int, len(gpus))
	for i, g := range gpus {
		at[g.GPU.Ref()] = i
		t.linked[i] = make([]bool, len(gpus))
		t.numa[i] = g.GPU.NUMA
		t.inNUMA[g.GPU.NUMA]++
	}
	for i, g := range gpus {
		for _, peer := range g.GPU.NVLinks {
			if j, ok := at[sharing.GPURef{UUID: peer}]; ok && j != i {
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
	touched int // free GPUs on the NUMA nodes touched
	memory  sharing.Bytes
	members []int // positions, ascending
}

func (a rank) compare(b rank) int {
	return cmp.Or(cmp.Compare(a.links, b.links), cmp.Compare(a.nodes, b.nodes), cmp.Compare(a.broken, b.broken),
		cmp.Compare(a.touched, b.touched), cmp.Compare(a.memory, b.memory), slices.Compare(a.members, b.members))
}

// rank reckons the rank of a set, which is ascending and becomes a part of it.
func (t topology) rank(set []int) rank {
	r := rank{members: set}
	for k, i := range set {
		for j, linked := range t.linked[i] {
			if !linked {
				continue
			}
			if _, inside := slices.BinarySearch(set, j); !inside {
				r.broken++
			} else if i < j {
				r.links--
			}
		}
		n := t.numa[i]
		if !slices.ContainsFunc(set[:k], func(j int) bool { return t.numa[j] == n }) {
			r.nodes++
			r.touched += t.inNUMA[n]
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
	consider := func(set []int) {
		if r := t.rank(set); best.members == nil || r.compare(best) < 0 {
			best = r
			best.members = slices.Clone(set)
		}
	}
	if len(free) <= maxExact {
		t.each(nil, n, consider)
	} else {
		t.grown(n, consider)
	}
	chosen := make([]GPUState, 0, n)
	for _, i := range best.members {
		chosen = append(chosen, free[i])
	}
	return chosen
}

// each calls do with every set of n GPUs that begins with set.
func (t topology) each(set []int, n int, do func([]int)) {
	if len(set) == n {
		do(set)
		return
	}
	from := 0
	if len(set) > 0 {
		from = set[len(set)-1] + 1
	}
	for i := from; i <= len(t.gpus)-(n-len(set)); i++ {
		t.each(append(set, i), n, do)
	}
}

// grown calls do with one set of n GPUs for each GPU to begin with.
func (t topology) grown(n int, do func([]int)) {
	for seed := range t.gpus {
		set := []int{seed}
		for len(set) < n {
			set = append(set, t.next(set))
			slices.Sort(set)
		}
		do(set)
	}
}

// next returns the GPU that makes the best set with those in set.
func (t topology) next(set []int) int {
	var best rank
	pick := -1
	for i := range t.gpus {
		if slices.Contains(set, i) {
			continue
		}
		r := t.rank(slices.Sorted(slices.Values(append(slices.Clone(set), i))))
		if pick < 0 || r.compare(best) < 0 {
			best, pick = r, i
		}
	}
	return pick
}
