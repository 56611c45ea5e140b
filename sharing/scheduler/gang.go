// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// Domain is a group of nodes that lie close together: a node, an NVLink clique of several, a rack, a leaf.
type Domain struct {
	Name  string
	Nodes []string
}

// gangs answers for several pods that are placed at once.
type gangs struct{ *judge }

// Gang returns at most so many domains in which all of the pods fit at once, best first. An earlier level goes first,
// then the domain with the least free memory, then the first name. Within a domain, pods are placed largest first, each
// at the best place of the policy, without backtracking. Nothing is reserved.
func (q *gangs) Gang(wants []PodRequest, levels [][]Domain, most int, now time.Time) []Domain {
	q.refresh()
	wants = largestFirst(wants)
	var out []Domain
	for _, level := range levels {
		type candidate struct {
			Domain
			free sharing.Bytes
		}
		var fit []candidate
		for _, d := range level {
			if q.placed(wants, d.Nodes, now) == len(wants) {
				fit = append(fit, candidate{d, q.free(d.Nodes)})
			}
		}
		slices.SortFunc(fit, func(x, y candidate) int {
			return cmp.Or(cmp.Compare(x.free, y.free),
				cmp.Compare(x.Name, y.Name))
		})
		for _, c := range fit {
			if len(out) == most {
				return out
			}
			out = append(out, c.Domain)
		}
	}
	return out
}

func largestFirst(wants []PodRequest) []PodRequest {
	wants = slices.Clone(wants)
	size := func(w PodRequest) (whole int64, memory sharing.Bytes) {
		for _, a := range w.Containers {
			if a.Request.Kind == sharing.KindWhole {
				whole += int64(a.Request.GPUs)
			}
			memory += a.Request.Memory
		}
		return whole, memory
	}
	slices.SortStableFunc(wants, func(x, y PodRequest) int {
		a, m := size(x)
		b, n := size(y)
		return cmp.Or(cmp.Compare(b, a), cmp.Compare(n, m), cmp.Compare(y.CPU, x.CPU))
	})
	return wants
}

// placed is how many of the pods have room on the nodes at once, until the first that has none.
func (q *gangs) placed(wants []PodRequest, names []string, now time.Time) int {
	return q.placedIf(wants, names, nil, now)
}

// placedIf is placed after the end of some pods.
func (q *gangs) placedIf(wants []PodRequest, names, without []string, now time.Time) int {
	type thought struct {
		*node
		state *state
		// full has the kinds of pods that it has no room for any more: what is taken only leaves less.
		full map[string]bool
	}
	var nodes []thought
	for _, name := range names {
		if n := q.nodes[name]; n != nil {
			if _, ok := trusted(n, now); ok {
				s := q.stateOf(n).clone()
				for _, uid := range without {
					s.release(uid)
				}
				nodes = append(nodes, thought{n, s, map[string]bool{}})
			}
		}
	}
	for done, w := range wants {
		best, most := -1, int64(0)
		var plan []Planned
		for i, n := range nodes {
			if n.full[w.key] {
				continue
			}
			v := q.fit(n.node, n.state, w, now)
			if v.Reason != Fits {
				n.full[w.key] = true
				continue
			}
			s := n.state
			if len(v.Plan) > 1 {
				s = s.clone()
			}
			if score := q.score(n.node, s, w, v, n.machine.CPU); best < 0 || score > most {
				best, most, plan = i, score, v.Plan
			}
		}
		if best < 0 {
			return done
		}
		for _, c := range plan {
			nodes[best].state.take(w.UID, c.Placement)
		}
	}
	return len(wants)
}

// free is the memory that is free on the nodes.
func (q *gangs) free(names []string) sharing.Bytes {
	sum := sharing.Bytes(0)
	for _, name := range names {
		if n := q.nodes[name]; n != nil {
			s := q.stateOf(n)
			for _, g := range s.gpus {
				sum += g.FreeMemory
				if s.migGPU(g.GPU.Ref()) != nil {
					free, of := s.units(g.GPU.Ref())
					sum += g.GPU.Usable() / sharing.Bytes(max(1, of)) * sharing.Bytes(free) //nolint:gosec // small numbers
				}
			}
		}
	}
	return sum
}

// Capacity is what each GPU of a node can take.
type Capacity map[sharing.GPURef]struct {
	memory  sharing.Bytes
	percent sharing.Percent
	units   int
	// turns is true for an idle GPU whose mode its node would change.
	turns bool
}

// Capacity is what each GPU of a node can take now: nothing where the node is not to be believed.
func (j *judge) Capacity(name string, now time.Time) Capacity {
	out := Capacity{}
	n := j.nodes[name]
	if _, ok := trusted(n, now); !ok {
		return out
	}
	s := j.stateOf(n)
	for _, g := range s.gpus {
		if g.GPU.Health == sharing.HealthOK {
			f := out[g.GPU.Ref()]
			f.memory, f.percent = g.FreeMemory, g.FreePercent
			if s.migGPU(g.GPU.Ref()) != nil {
				f.units, _ = s.units(g.GPU.Ref())
			}
			f.turns = s.idle(g)
			out[g.GPU.Ref()] = f
		}
	}
	return out
}

// More is true when any GPU can take more than it could before.
func (r Capacity) More(before Capacity) bool {
	for id, now := range r {
		if was := before[id]; now.memory > was.memory || now.percent > was.percent || now.units > was.units ||
			now.turns && !was.turns {
			return true
		}
	}
	return false
}
