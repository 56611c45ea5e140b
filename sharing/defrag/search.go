// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package defrag

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
)

// search is the best step for one of the waiting pods. It looks at the nodes with the least possible cost first.
func (s *solver) search() (Step, bool) {
	best, found := Step{}, false
	seen := map[string]bool{}
	for _, pod := range s.waiting {
		class := s.problem.Pods[pod].Class
		if s.dead[class] || class != "" && seen[class] {
			continue
		}
		if len(seen) == mostClasses || s.spent(mostWork) {
			break
		}
		seen[cmp.Or(class, s.problem.Pods[pod].UID)] = true
		limit := int64(math.MaxInt64)
		demand := s.problem.Pods[pod].Demand
		if found { // the highest cost that is still better
			limit = (best.Cost*demand + best.Freed - 1) / best.Freed
		}
		step, ok := s.room(pod, limit)
		if ok && (!found || cheaper(step.Cost, step.Freed, best.Cost, best.Freed)) {
			best, found = step, true
		} else if !ok && limit == math.MaxInt64 && class != "" {
			s.dead[class] = true
		}
	}
	return best, found
}

// spot is a node and the least that moves on it can cost.
type spot struct {
	node  int
	bound int64
}

// mostSpots bounds the nodes that are looked at closely for one pending pod.
const mostSpots = 200

// room is the cheapest moves, below a limit, that let a pending pod fit on one node.
func (s *solver) room(pod int, limit int64) (Step, bool) {
	var spots []spot
	for node := range s.on {
		if bound, ok := s.bound(pod, node); ok && bound < limit {
			spots = append(spots, spot{node, bound})
		}
	}
	slices.SortFunc(spots, func(a, b spot) int {
		return cmp.Or(cmp.Compare(a.bound, b.bound), cmp.Compare(a.node, b.node))
	})
	best, found := Step{}, false
	for i, at := range spots {
		if at.bound >= limit || i == mostSpots || s.spent(mostWork) {
			break
		}
		if step, ok := s.clear(pod, at.node, limit); ok {
			best, found, limit = step, true, step.Cost
		}
	}
	return best, found
}

// bound is the least that moves on a node cost; false if no moves there help.
func (s *solver) bound(pod, node int) (int64, bool) {
	p := &s.problem.Pods[pod]
	gpus := len(s.problem.Nodes[node].GPUs)
	if gpus < p.GPUs {
		return 0, false
	}
	costs := make([]int64, gpus)
	least, some := int64(math.MaxInt64), false
	whole := p.Demand >= 1000*int64(p.GPUs)
	for _, other := range s.on[node] {
		at := s.at[other].GPUs
		if !s.movable(other, p.Priority) {
			for _, g := range at {
				costs[g] = math.MaxInt32
			}
			continue
		}
		some = true
		cost := s.problem.Pods[other].Cost()
		least = min(least, cost)
		for _, g := range at {
			costs[g] = min(math.MaxInt32, costs[g]+cost/int64(len(at)))
		}
	}
	if !some || !whole {
		return least, some
	}
	slices.Sort(costs)
	sum := int64(0)
	for _, c := range costs[:p.GPUs] {
		if c == math.MaxInt32 {
			return 0, false
		}
		sum += c
	}
	return max(sum, least), true
}

// clear is the cheapest step, below a limit, that lets a pending pod fit on a node.
func (s *solver) clear(pod, node int, limit int64) (Step, bool) {
	best, found := Step{}, false
	tried := map[string]bool{}
	for _, pods := range s.victims(pod, node) {
		less, ok := s.spare(pod, node, pods)
		key := keyOf(less)
		if !ok || tried[key] || s.cost(less) >= limit || !s.allowed(less) {
			continue
		}
		tried[key] = true
		if step, ok := s.relocate(pod, node, less); ok {
			best, found, limit = step, true, step.Cost
		}
	}
	return best, found
}

func keyOf(pods []int) string {
	key := make([]byte, 0, 8*len(pods))
	for _, pod := range pods {
		key = binary.LittleEndian.AppendUint64(key, uint64(pod)) //nolint:gosec // an index
	}
	return string(key)
}

func (s *solver) cost(pods []int) int64 {
	sum := int64(0)
	for _, pod := range pods {
		sum += s.problem.Pods[pod].Cost()
	}
	return sum
}

// victims are sets of pods of a node that may be moved for a pending pod. They are those of the cheapest GPUs, those of
// each GPU, and all of them.
func (s *solver) victims(pod, node int) [][]int {
	p := &s.problem.Pods[pod]
	var all []int
	byGPU := make([][]int, len(s.problem.Nodes[node].GPUs))
	costs := make([]int64, len(byGPU))
	for _, other := range s.on[node] {
		at := s.at[other].GPUs
		can := s.movable(other, p.Priority)
		if can {
			all = append(all, other)
		}
		for _, g := range at {
			if can {
				byGPU[g] = append(byGPU[g], other)
				costs[g] += s.problem.Pods[other].Cost() / int64(len(at))
			} else {
				costs[g] += math.MaxInt32
			}
		}
	}
	order := make([]int, len(byGPU))
	for g := range order {
		order[g] = g
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(costs[a], costs[b]) })
	var cheapest []int
	for _, g := range order[:min(max(1, p.GPUs), len(order))] {
		cheapest = append(cheapest, byGPU[g]...)
	}
	out := [][]int{cheapest}
	if p.GPUs == 1 {
		for _, g := range order[1:] {
			out = append(out, byGPU[g])
		}
	}
	out = append(out, all)
	for i := range out {
		slices.Sort(out[i])
		out[i] = slices.Compact(out[i])
	}
	return out
}

// spare removes pods that need not move from a set, the most expensive first. It is false if the pending pod does not
// fit even if all of them move.
func (s *solver) spare(pod, node int, pods []int) ([]int, bool) {
	if len(pods) == 0 {
		return nil, false
	}
	for _, other := range pods {
		s.cluster.Release(other, s.at[other])
	}
	fits := func() bool { return len(s.cluster.Places(pod, node, false)) > 0 }
	gone := slices.Clone(pods)
	ok := fits()
	if ok {
		slices.SortStableFunc(gone, func(a, b int) int {
			return cmp.Compare(s.problem.Pods[b].Cost(), s.problem.Pods[a].Cost())
		})
		gone = slices.DeleteFunc(gone, func(other int) bool {
			s.cluster.Take(other, s.at[other])
			if fits() {
				return true
			}
			s.cluster.Release(other, s.at[other])
			return false
		})
	}
	for _, other := range gone {
		s.cluster.Take(other, s.at[other])
	}
	slices.Sort(gone)
	return gone, ok && len(gone) > 0
}

// relocate finds places for pods that leave a node for a pending one, the largest first.
func (s *solver) relocate(pod, node int, pods []int) (Step, bool) {
	for _, other := range pods {
		s.cluster.Release(other, s.at[other])
	}
	defer func() {
		for _, other := range pods {
			s.cluster.Take(other, s.at[other])
		}
	}()
	places := s.cluster.Places(pod, node, false)
	if len(places) == 0 {
		return Step{}, false
	}
	to := places[0]
	s.cluster.Take(pod, to)
	s.cluster.Withhold(to.Node, to.GPUs, true)
	step := Step{Fits: []Fit{{pod, to}}, Freed: s.problem.Pods[pod].Demand}
	defer func() {
		for _, m := range step.Moves {
			s.cluster.Release(m.Pod, m.To)
		}
		s.cluster.Withhold(to.Node, to.GPUs, false)
		s.cluster.Release(pod, to)
	}()
	largest := slices.Clone(pods)
	slices.SortStableFunc(largest, func(a, b int) int {
		return cmp.Compare(s.problem.Pods[b].Demand, s.problem.Pods[a].Demand)
	})
	for _, other := range largest {
		p, ok := s.cluster.Best(other)
		if !ok {
			return step, false
		}
		s.cluster.Take(other, p)
		cost := s.problem.Pods[other].Cost()
		step.Moves, step.Cost = append(step.Moves, Move{other, s.at[other], p, cost}), step.Cost+cost
	}
	moves, ok := s.ordered(step.Moves, step.Fits)
	if ok {
		step.Moves = moves
	}
	return step, ok
}
