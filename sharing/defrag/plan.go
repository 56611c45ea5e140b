// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package defrag

import (
	"cmp"
	"slices"
)

// The size up to which a step is optimal.
const (
	exactGPUs = 8
	exactPods = 12
)

// mostClasses bounds how many different pending requests a step is looked for.
const mostClasses = 16

// mostWork bounds a plan, in the units of Cluster.Work: on one core about a second. The pending pods that fit without
// a move get half of it.
const mostWork = 6_000_000

// solver makes one plan.
type solver struct {
	problem *Problem
	cluster Cluster
	// at is where each pod is now; waiting are the pending pods that do not fit, the most important first.
	at      []Place
	waiting []int
	moved   map[int]bool
	// budgets are the disruptions left, moves the moves left.
	budgets []int
	moves   int
	// on are the pods on each node.
	on [][]int
	// dead are the classes of pending pods for which no step is looked for: none was found before, or they may fit.
	dead    map[string]bool
	partial bool
}

// spent reports whether the work is more than a bound. The plan is then partial.
func (s *solver) spent(most int64) bool {
	over := s.cluster.Work() > most
	s.partial = s.partial || over
	return over
}

// Make plans moves. It leaves the cluster as it is after the plan.
func Make(p *Problem, c Cluster) Plan {
	s := &solver{problem: p, cluster: c, at: make([]Place, len(p.Pods)), moved: map[int]bool{},
		budgets: slices.Clone(p.Budgets), moves: cmp.Or(p.Limits.Moves, DefaultMoves),
		on: make([][]int, c.Nodes()), dead: map[string]bool{}}
	for i := range p.Pods {
		pod := &p.Pods[i]
		if pod.Placed {
			s.put(i, pod.At)
		} else {
			s.waiting = append(s.waiting, i)
		}
	}
	slices.SortStableFunc(s.waiting, func(a, b int) int {
		x, y := &p.Pods[a], &p.Pods[b]
		return cmp.Or(cmp.Compare(y.Priority, x.Priority), cmp.Compare(y.Demand, x.Demand))
	})
	plan := Plan{Fit: s.settle(mostWork / 2)}
	for s.moves > 0 && len(s.waiting) > 0 {
		step, ok := s.next()
		if !ok {
			break
		}
		s.apply(&step)
		plan.Steps = append(plan.Steps, step)
	}
	plan.Left, plan.Partial = s.waiting, s.partial
	return plan
}

// put notes where a pod is.
func (s *solver) put(pod int, p Place) {
	s.at[pod] = p
	s.on[p.Node] = append(s.on[p.Node], pod)
}

// settle places the waiting pods that fit, until the work is more than a bound.
func (s *solver) settle(most int64) []Fit {
	var fits []Fit
	full := map[string]bool{}
	s.waiting = slices.DeleteFunc(s.waiting, func(pod int) bool {
		class := s.problem.Pods[pod].Class
		if class != "" && full[class] {
			return false
		}
		if s.spent(most) {
			s.dead[class] = true // It may fit as it is, so that no pod may move for it.
			return false
		}
		p, ok := s.cluster.Best(pod)
		if !ok {
			full[class] = true
			return false
		}
		s.cluster.Take(pod, p)
		s.put(pod, p)
		s.moved[pod] = true // it does not move before it has started
		fits = append(fits, Fit{pod, p})
		return true
	})
	return fits
}

// next finds the step with the least cost for each freed GPU.
func (s *solver) next() (Step, bool) {
	var best Step
	found := false
	if s.small() {
		best, found = s.exact()
	} else {
		best, found = s.search()
	}
	most := s.problem.Limits.CostPerGPU
	if found && most > 0 && cheaper(most, 1000, best.Cost, best.Freed) {
		return Step{}, false
	}
	return best, found
}

// small reports whether the problem is small enough for all possibilities.
func (s *solver) small() bool {
	gpus := 0
	for _, n := range s.problem.Nodes {
		gpus += len(n.GPUs)
	}
	return gpus <= exactGPUs && len(s.problem.Pods) <= exactPods
}

// movable reports whether a pod may be moved for a pending one of the priority.
func (s *solver) movable(pod int, priority int32) bool {
	p := &s.problem.Pods[pod]
	return p.Placed && p.StayReason == "" && !s.moved[pod] && p.Priority <= priority
}

// allowed reports whether the limits allow these moves together.
func (s *solver) allowed(pods []int) bool {
	if len(pods) > s.moves {
		return false
	}
	used := map[int]int{}
	for _, pod := range pods {
		for _, b := range s.problem.Pods[pod].Budgets {
			used[b]++
			if used[b] > s.budgets[b] {
				return false
			}
		}
	}
	return true
}

// apply carries a step out in the cluster, and places the waiting pods that fit in addition.
func (s *solver) apply(step *Step) {
	for _, m := range step.Moves {
		s.cluster.Release(m.Pod, m.From)
		s.cluster.Take(m.Pod, m.To)
		s.moved[m.Pod] = true
		s.on[m.From.Node] = slices.DeleteFunc(s.on[m.From.Node], func(pod int) bool { return pod == m.Pod })
		s.put(m.Pod, m.To)
		for _, b := range s.problem.Pods[m.Pod].Budgets {
			s.budgets[b]--
		}
	}
	s.moves -= len(step.Moves)
	step.Empty = s.empty(step.Moves)
	for _, f := range step.Fits {
		s.cluster.Take(f.Pod, f.To)
		s.moved[f.Pod] = true
		s.put(f.Pod, f.To)
		s.waiting = slices.DeleteFunc(s.waiting, func(pod int) bool { return pod == f.Pod })
	}
	for _, f := range s.settle(mostWork) {
		step.Fits = append(step.Fits, f)
		step.Freed += s.problem.Pods[f.Pod].Demand
	}
}

// empty are the GPUs of the moved pods' origins that no pod uses now.
func (s *solver) empty(moves []Move) []GPU {
	var out []GPU
	for _, m := range moves {
		for _, g := range m.From.GPUs {
			one := GPU{m.From.Node, g}
			if !slices.Contains(out, one) && !slices.ContainsFunc(s.on[one.Node], func(pod int) bool {
				return slices.Contains(s.at[pod].GPUs, g)
			}) {
				out = append(out, one)
			}
		}
	}
	slices.SortFunc(out, func(a, b GPU) int { return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.GPU, b.GPU)) })
	return out
}

// ordered brings moves into an order in which each destination is free when its turn comes. Meanwhile the GPUs of the
// pending pods take nothing new. The cluster has the moved pods at their destinations, the pending pods placed and
// their GPUs withheld, before and after the call. It is false if there is no such order.
func (s *solver) ordered(moves []Move, fits []Fit) ([]Move, bool) {
	for _, f := range fits {
		s.cluster.Release(f.Pod, f.To)
	}
	for _, m := range moves {
		s.cluster.Release(m.Pod, m.To)
	}
	for _, m := range moves {
		s.cluster.Take(m.Pod, m.From)
	}
	var out []Move
	rest := slices.Clone(moves)
	for len(rest) > 0 {
		i := slices.IndexFunc(rest, func(m Move) bool {
			s.cluster.Release(m.Pod, m.From)
			if s.cluster.Open(m.Pod, m.To) {
				s.cluster.Take(m.Pod, m.To)
				return true
			}
			s.cluster.Take(m.Pod, m.From)
			return false
		})
		if i < 0 {
			break
		}
		out, rest = append(out, rest[i]), slices.Delete(rest, i, i+1)
	}
	for _, m := range rest {
		s.cluster.Release(m.Pod, m.From)
	}
	for _, m := range rest {
		s.cluster.Take(m.Pod, m.To)
	}
	for _, f := range fits {
		s.cluster.Take(f.Pod, f.To)
	}
	return out, len(rest) == 0
}
