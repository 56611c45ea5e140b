// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
)

// Answer is what one node would say to a pod.
type Answer struct {
	Node string
	Verdict
	// Score and Terms are there where it fits; the highest score is the best.
	Score int64
	Terms []cluster.Term
}

// Answers are those of all nodes that a report was ever heard of, as if the pod itself held nothing: those that fit first,
// the best before the others and equal ones by name, as they would be chosen; then the others by their reasons. free is the
// CPU that each machine has without the pod; a node that is not in it counts as empty.
func (j *judge) Answers(w Want, free map[string]cluster.Milli, now time.Time) []Answer {
	j.refresh()
	var out []Answer
	for name, n := range j.nodes {
		if n.report == nil {
			continue
		}
		a := Answer{Node: name}
		var ok bool
		if a.Verdict, ok = trusted(n, now); ok {
			s := j.books(n).clone()
			s.release(w.UID)
			a.Verdict = j.fit(n, s, w, now)
			if a.Reason == Fits {
				cpu, known := free[name]
				if !known {
					cpu = n.machine.CPU
				}
				a.Score = j.score(n, s.clone(), w, a.Verdict, cpu)
				a.Terms = j.terms(n, s, w, a.Verdict, cpu)
			}
		}
		out = append(out, a)
	}
	slices.SortFunc(out, func(x, y Answer) int {
		return cmp.Or(cmp.Compare(rank(x), rank(y)), cmp.Compare(y.Score, x.Score), cmp.Compare(x.Reason, y.Reason), cmp.Compare(x.Node, y.Node))
	})
	return out
}

func rank(a Answer) int {
	if a.Reason == Fits {
		return 0
	}
	return 1
}

// Standing is what the books know of a pod that is on a node.
type Standing struct {
	Node string
	// Plan has what its Binding named for each container, GPU by GPU, as sharing.PlacementValue writes it; empty for one that
	// was placed by others.
	Plan map[string][]string
	// Has is what its node has reported for it last; nil before that.
	Has sharing.Placement
	// Unplaced is why its node has no room for it; empty where it has.
	Unplaced string
}

// Standing is false for a pod that is on no node.
func (x *inventory) Standing(uid string) (Standing, bool) {
	p := x.pods[uid]
	if p == nil {
		return Standing{}, false
	}
	s := Standing{Node: p.node, Plan: map[string][]string{}, Has: p.seen.Clone()}
	for container, a := range p.plan {
		for _, gpu := range a.GPUs {
			f := sharing.Fragment{GPU: gpu}
			if a.MIG.Profile != "" {
				f.MIG = sharing.Instance{Profile: a.MIG.Profile, Start: a.MIG.Start, Size: 1}
			}
			s.Plan[container] = append(s.Plan[container], sharing.PlacementValue(sharing.Placement{f}))
		}
	}
	if n := x.nodes[p.node]; n != nil && n.report != nil && !n.claimed(p) {
		s.Unplaced = n.report.unplaced[uid]
	}
	return s, true
}

// Needs is what the pod asks for, in the words of who wrote it.
func (w Want) Needs() string { return needs(w.Asks) }
