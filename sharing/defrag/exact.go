// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package defrag

import (
	"cmp"
	"math/bits"
	"slices"
)

// set is pods that could be moved together.
type set struct {
	pods     []int
	cost     int64
	priority int32
}

// exact is the step with the least cost for each freed GPU, of all that there are. It tries the sets of pods in the
// order of their costs until no other set can be better.
func (s *solver) exact() (Step, bool) {
	x := &exactSearch{solver: s}
	for _, pod := range s.waiting {
		x.wanted += s.problem.Pods[pod].Demand
	}
	for _, one := range s.sets() {
		if x.found && !cheaper(one.cost, x.wanted, x.best.Cost, x.best.Freed) {
			break
		}
		if s.allowed(one.pods) {
			x.try(one)
		}
	}
	return x.best, x.found
}

// sets are all sets of pods that may be moved, the cheapest first.
func (s *solver) sets() []set {
	var pods []int
	for pod := range s.problem.Pods {
		if s.movable(pod, s.problem.Pods[s.waiting[0]].Priority) {
			pods = append(pods, pod)
		}
	}
	out := make([]set, 0, 1<<len(pods))
	for mask := uint(1); mask < 1<<len(pods); mask++ {
		one := set{pods: make([]int, 0, bits.OnesCount(mask))}
		for i, pod := range pods {
			if mask&(1<<i) == 0 {
				continue
			}
			p := &s.problem.Pods[pod]
			if len(one.pods) == 0 || p.Priority > one.priority {
				one.priority = p.Priority
			}
			one.pods, one.cost = append(one.pods, pod), one.cost+p.Cost()
		}
		out = append(out, one)
	}
	slices.SortStableFunc(out, func(a, b set) int {
		return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(len(a.pods), len(b.pods)))
	})
	return out
}

// exactSearch is the search for one step.
type exactSearch struct {
	*solver
	// wanted is the demand of all waiting pods.
	wanted int64
	best   Step
	found  bool

	// The set that is tried, the pending pods that may get what it frees, and the places so far.
	set     set
	pending []int
	fits    []Fit
	moves   []Move
}

// try looks for places of the pods of a set and of as much pending demand as possible.
func (x *exactSearch) try(one set) {
	x.set, x.fits, x.moves = one, nil, nil
	x.pending = nil
	rest := int64(0)
	for _, pod := range x.waiting {
		if x.problem.Pods[pod].Priority >= one.priority {
			x.pending = append(x.pending, pod)
			rest += x.problem.Pods[pod].Demand
		}
	}
	for _, pod := range one.pods {
		x.cluster.Release(pod, x.at[pod])
	}
	x.placePending(0, 0, rest)
	for _, pod := range one.pods {
		x.cluster.Take(pod, x.at[pod])
	}
}

// better reports whether the set with so much freed demand would be the best step.
func (x *exactSearch) better(freed int64) bool {
	return freed > 0 && (!x.found || cheaper(x.set.cost, freed, x.best.Cost, x.best.Freed))
}

// placePending places or leaves out the pending pods from one on. Those before have freed so much, and the rest can
// add so much.
func (x *exactSearch) placePending(from int, freed, rest int64) {
	if !x.better(freed + rest) {
		return
	}
	if from == len(x.pending) {
		x.withhold(true)
		x.placeMoved(0)
		x.withhold(false)
		return
	}
	pod := x.pending[from]
	demand := x.problem.Pods[pod].Demand
	for node := range x.cluster.Nodes() {
		if x.problem.Limits.Single && len(x.fits) > 0 {
			break
		}
		for _, p := range x.cluster.Places(pod, node, true) {
			x.cluster.Take(pod, p)
			x.fits = append(x.fits, Fit{pod, p})
			x.placePending(from+1, freed+demand, rest-demand)
			x.fits = x.fits[:len(x.fits)-1]
			x.cluster.Release(pod, p)
		}
	}
	x.placePending(from+1, freed, rest-demand)
}

// withhold has the GPUs of the pending pods take nothing else, or ends that.
func (x *exactSearch) withhold(withheld bool) {
	for _, f := range x.fits {
		x.cluster.Withhold(f.To.Node, f.To.GPUs, withheld)
	}
}

// placeMoved places the pods of the set from one on; true once it has found a step.
func (x *exactSearch) placeMoved(from int) bool {
	if from == len(x.set.pods) {
		moves, ok := x.ordered(x.moves, x.fits)
		if !ok {
			return false
		}
		x.found, x.best = true, Step{Moves: moves, Fits: slices.Clone(x.fits), Cost: x.set.cost}
		for _, f := range x.fits {
			x.best.Freed += x.problem.Pods[f.Pod].Demand
		}
		return true
	}
	pod := x.set.pods[from]
	for node := range x.cluster.Nodes() {
		for _, p := range x.cluster.Places(pod, node, true) {
			x.cluster.Take(pod, p)
			x.moves = append(x.moves, Move{pod, x.at[pod], p, x.problem.Pods[pod].Cost()})
			done := x.placeMoved(from + 1)
			x.moves = x.moves[:len(x.moves)-1]
			x.cluster.Release(pod, p)
			if done {
				return true
			}
		}
	}
	return false
}
