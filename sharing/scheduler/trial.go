// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
)

// Free is what a machine has free in addition to its GPUs.
type Free struct {
	CPU    cluster.Milli
	Memory sharing.Bytes
	// Closed machines take no new pods.
	Closed bool
}

// Trial is a copy of the cluster state on which pods are moved to see what then fits. Pods fit by the function that the
// scheduler uses. The cluster state must not change while a Trial is in use.
type Trial struct {
	judge *judge
	now   time.Time
	names []string
	free  []Free
	// states are those of the nodes that were changed; nil for the others.
	states []*state
	// withheld are GPUs that take nothing new and would, and kept how many each node has.
	withheld map[sharing.GPURef]bool
	kept     []int
	work     int64
	// largest is the memory of the largest GPU.
	largest sharing.Bytes
}

// judgeWork is the cost of a judgment of a node. Reading a known answer costs 1.
const judgeWork = 200

// Work measures what the Trial has done so far. To read a known answer of a node is 1, and takes about 0.1 µs.
func (t *Trial) Work() int64 { return t.work }

// Trial starts one on the nodes that report, sorted by name. A machine that is not in free counts as closed.
func (b *ClusterState) Trial(free map[string]Free, now time.Time) *Trial {
	b.refresh()
	t := &Trial{judge: b.judge, now: now, withheld: map[sharing.GPURef]bool{}}
	for name, n := range b.nodes {
		if n.report != nil {
			t.names = append(t.names, name)
		}
	}
	slices.Sort(t.names)
	t.states, t.kept = make([]*state, len(t.names)), make([]int, len(t.names))
	for _, name := range t.names {
		f, ok := free[name]
		f.Closed = f.Closed || !ok
		t.free = append(t.free, f)
	}
	for i := range t.names {
		for _, g := range t.read(i).gpus {
			t.largest = max(t.largest, g.GPU.Bookable())
		}
	}
	return t
}

// Names are the names of the nodes; nodes have the index of theirs.
func (t *Trial) Names() []string { return t.names }

func (t *Trial) node(i int) *node { return t.judge.nodes[t.names[i]] }

// Pool is the pool of a node.
func (t *Trial) Pool(i int) string { return t.node(i).report.pool }

// read is the state of a node, which must not be changed.
func (t *Trial) read(i int) *state {
	if s := t.states[i]; s != nil {
		return s
	}
	return t.judge.stateOf(t.node(i))
}

// write is the state of a node for changes.
func (t *Trial) write(i int) *state {
	if t.states[i] == nil {
		t.states[i] = t.judge.stateOf(t.node(i)).clone()
	}
	return t.states[i]
}

// GPUs are the GPUs of a node.
func (t *Trial) GPUs(i int) []sharing.GPURef {
	var out []sharing.GPURef
	for _, g := range t.read(i).gpus {
		out = append(out, g.GPU.Ref())
	}
	return out
}

// PodPlacement is what a pod has on a node.
func (t *Trial) PodPlacement(i int, uid string) sharing.Placement { return t.read(i).held[uid] }

// Demand is what a placement on a node takes, in thousandths of a GPU.
func (t *Trial) Demand(i int, p sharing.Placement) int64 {
	s, sum := t.read(i), cluster.Milli(0)
	for _, f := range p {
		g := s.at(f.GPU)
		switch {
		case f.Whole:
			sum += cluster.WholeGPU
		case g == nil:
		case !f.MIG.None():
			if c := s.migGPUs[f.GPU]; c != nil && c.geometry != nil {
				sum += cluster.Milli(f.MIG.Size) * cluster.WholeGPU / cluster.Milli(max(1, c.table.Axis()))
			}
		default:
			sum += max(milli(f.Memory, g.GPU.Bookable(), true), cluster.Milli(f.Percent)*10)
		}
	}
	return int64(sum)
}

// Wanted is how many GPUs a pod requests, and what it takes of all of them in thousandths, measured by the largest GPU.
func (t *Trial) Wanted(w PodRequest) (gpus int, demand int64) {
	for _, a := range w.Containers {
		if a.Kind == sharing.ContainerInit {
			continue
		}
		s := shapeOf(a.Request, 0)
		share := s.Share
		if s.GPUMemory > 0 && t.largest > 0 {
			share = max(share, milli(s.GPUMemory, t.largest, true))
		}
		gpus, demand = gpus+s.GPUs, demand+int64(s.GPUs)*int64(min(share, cluster.WholeGPU))
	}
	return gpus, demand
}

// closed reports whether a node has no CPU or memory for a pod, or takes none.
func (t *Trial) closed(w PodRequest, i int) bool {
	f := t.free[i]
	return f.Closed || f.CPU < w.CPU || f.Memory < w.Memory
}

// Fit is the placement that the scheduler would choose on a node; false if the pod does not fit.
func (t *Trial) Fit(w PodRequest, i int) ([]Planned, bool) {
	if t.closed(w, i) || !t.mayFit(w, i) {
		return nil, false
	}
	v := t.verdict(w, i)
	return v.Plan, v.Reason == Fits
}

// mayFit is false if too few GPUs of a node have the memory and percent, whatever else is true. It is much faster than
// a verdict.
func (t *Trial) mayFit(w PodRequest, i int) bool {
	if len(w.Containers) != 1 {
		return true
	}
	a := &w.Containers[0]
	r := a.Request
	if a.Kind == sharing.ContainerInit || a.sharedCap || r.Kind == sharing.KindMIG || r.Open() {
		return true
	}
	memory, percent := r.Each()
	gpus, count := t.read(i).gpus, 0
	for k := range gpus {
		g := &gpus[k]
		// A GPU in MIG mode can leave it.
		if g.GPU.MIG || (r.Kind == sharing.KindWhole && !g.InUse) ||
			(r.Kind != sharing.KindWhole && g.FreeMemory >= memory && g.FreePercent >= percent) {
			count++
		}
	}
	return count >= r.GPUs
}

func (t *Trial) verdict(w PodRequest, i int) Verdict {
	t.work += judgeWork
	n := t.node(i)
	if v, ok := trusted(n, t.now); !ok {
		return v
	}
	if t.states[i] == nil {
		return t.judge.Fit(w, n.name, t.now)
	}
	return t.judge.fit(n, t.states[i], w, t.now)
}

// Best is the node that the scheduler would choose, with the placement there.
func (t *Trial) Best(w PodRequest) (int, []Planned, bool) {
	kind := t.judge.kinds.of(w)
	best, at := Candidate{}, -1
	t.work += int64(len(t.names))
	for i, name := range t.names {
		if t.closed(w, i) || !t.mayFit(w, i) {
			continue
		}
		if _, ok := trusted(t.node(i), t.now); !ok {
			continue
		}
		score, fits := t.score(w, kind, i)
		if c := (Candidate{Node: name, Score: score, Free: t.free[i].CPU}); fits && (at < 0 || c.Before(best)) {
			best, at = c, i
		}
	}
	if at < 0 {
		return 0, nil, false
	}
	plan, ok := t.Fit(w, at)
	return at, plan, ok
}

// score is that of the scheduler for a node that is trusted; false if the pod does not fit.
func (t *Trial) score(w PodRequest, k kind, i int) (int64, bool) {
	n, free := t.node(i), t.free[i].CPU
	if t.states[i] == nil {
		a, known := t.judge.known(n, k, w, free)
		if !known {
			t.work += judgeWork
			a = t.judge.ranked(n, k, w, free, t.now)
		}
		return a.score, a.fits
	}
	v := t.verdict(w, i)
	if v.Reason != Fits {
		return 0, false
	}
	return t.judge.score(n, t.states[i].clone(), w, v, free), true
}

// Open reports whether exactly this placement fits on a node now.
func (t *Trial) Open(w PodRequest, i int, plan []Planned) bool {
	if t.closed(w, i) {
		return false
	}
	s := t.read(i)
	if len(plan) > 1 {
		s = s.clone()
	}
	for _, a := range w.Containers {
		p, ok := Verdict{Plan: plan}.placement(a.Container)
		if !ok {
			continue
		}
		r, err := t.judge.resolved(t.node(i), a)
		if err != nil {
			return false
		}
		var advice sharing.Advice
		for _, f := range p {
			advice.GPUs = append(advice.GPUs, f.GPU.UUID)
			if in := f.Instance(); !in.None() {
				advice.MIG = in
			}
		}
		if _, ok := s.planned(advice, r); !ok {
			return false
		}
		if len(plan) > 1 {
			s.take(w.UID, p)
		}
	}
	return true
}
