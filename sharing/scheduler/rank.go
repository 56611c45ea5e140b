// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"container/heap"
	"iter"
	"time"

	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
)

// Candidate is a node that answers a pod, and how well.
type Candidate struct {
	Node  string
	Score int64
	// Free is the CPU that its machine had free.
	Free cluster.Milli
}

// Before is the order in which candidates are taken: the highest score first, of equal ones the first name.
func (a Candidate) Before(b Candidate) bool {
	return a.Score > b.Score || a.Score == b.Score && a.Node < b.Node
}

// Candidates are nodes that answer a pod, of which the best can be taken one after the other.
type Candidates []Candidate

// Len is how many there are.
func (c Candidates) Len() int { return len(c) }

// Less implements heap.Interface.
func (c Candidates) Less(i, j int) bool { return c[i].Before(c[j]) }

// Swap implements heap.Interface.
func (c Candidates) Swap(i, j int) { c[i], c[j] = c[j], c[i] }

// Push implements heap.Interface.
func (c *Candidates) Push(x any) {
	if one, ok := x.(Candidate); ok {
		*c = append(*c, one)
	}
}

// Pop implements heap.Interface; Best is what takes the best.
func (c *Candidates) Pop() any {
	last := len(*c) - 1
	one := (*c)[last]
	*c = (*c)[:last]
	return one
}

// Best takes the best one; false when none is left.
func (c *Candidates) Best() (Candidate, bool) {
	if len(*c) == 0 {
		return Candidate{}, false
	}
	one, ok := heap.Pop(c).(Candidate)
	return one, ok
}

// kind is pods that request the same: number is theirs alone, and place is where each node keeps its answer to them.
type kind struct {
	number uint64
	place  int
}

type kindKey struct {
	key string
	cpu cluster.Milli
}

// kinds are those of the pods that asked last, and numbered counts those that there ever were.
type kinds struct {
	all      map[kindKey]kind
	numbered uint64
}

// ranked is what a node answered a kind of pod, as long as nothing of it has changed.
type ranked struct {
	kind, version, era uint64
	free               cluster.Milli
	score              int64
	fits               bool
}

// Candidates are the nodes that answer the pod now, with the scores that Score gives them. The nodes are machines, with
// the free CPU of each. For an unchanged node, the answer for the last pod of the same kind is reused. So all nodes of
// a cluster can be checked for each pod.
func (j *judge) Candidates(w PodRequest, machines iter.Seq2[string, cluster.Milli], now time.Time) Candidates {
	var out Candidates
	if _, ok := j.permitted(w, now); !ok {
		return out
	}
	j.refresh()
	k := j.kinds.of(w)
	for name, free := range machines {
		n := j.nodes[name]
		if _, ok := trusted(n, now); !ok {
			continue
		}
		if a := j.ranked(n, k, w, free, now); a.fits {
			out = append(out, Candidate{Node: name, Score: a.score, Free: free})
		}
	}
	heap.Init(&out)
	return out
}

// ranked is the node's answer, kept for pods of one container: what those of several get depends on their names.
func (j *judge) ranked(n *node, k kind, w PodRequest, free cluster.Milli, now time.Time) ranked {
	if a, ok := j.known(n, k, w, free); ok {
		return a
	}
	a := ranked{kind: k.number, version: n.version, era: j.era, free: free}
	if a.fits = j.Fit(w, n.name, now).Reason == Fits; a.fits {
		a.score = j.Score(w, n.name, free, now)
	}
	if len(w.Containers) == 1 {
		if k.place >= len(n.ranked) {
			n.ranked = append(n.ranked, make([]ranked, k.place+1-len(n.ranked))...)
		}
		n.ranked[k.place] = a
	}
	return a
}

// known is the node's answer if it was kept.
func (j *judge) known(n *node, k kind, w PodRequest, free cluster.Milli) (ranked, bool) {
	if len(w.Containers) != 1 || k.place >= len(n.ranked) {
		return ranked{}, false
	}
	a := n.ranked[k.place]
	return a, a.kind == k.number && a.version == n.version && a.era == j.era && a.free == free
}

// of is the kind of the pod; beyond mostKept of them, all are forgotten.
func (k *kinds) of(w PodRequest) kind {
	key := kindKey{w.key, w.CPU}
	if one, ok := k.all[key]; ok {
		return one
	}
	if len(k.all) >= mostKept {
		clear(k.all)
	}
	k.numbered++
	one := kind{number: k.numbered, place: len(k.all)}
	k.all[key] = one
	return one
}
