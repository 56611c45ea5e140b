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
	// withheld are GPUs that take nothing new and would.
	withheld map[sharing.GPURef]bool
}

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
	t.states = make([]*state, len(t.names))
	for _, name := range t.names {
		f, ok := free[name]
		f.Closed = f.Closed || !ok
		t.free = append(t.free, f)
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
	largest := sharing.Bytes(0)
	for i := range t.names {
		for _, g := range t.read(i).gpus {
			largest = max(largest, g.GPU.Bookable())
		}
	}
	for _, a := range w.Containers {
		if a.Kind == sharing.ContainerInit {
			continue
		}
		s := shapeOf(a.Request, 0)
		share := s.Share
		if s.GPUMemory > 0 && largest > 0 {
			share = max(share, milli(s.GPUMemory, largest, true))
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
	if t.closed(w, i) {
		return nil, false
	}
	v := t.verdict(w, i)
	return v.Plan, v.Reason == Fits
}

func (t *Trial) verdict(w PodRequest, i int) Verdict {
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
	for i, name := range t.names {
		if t.closed(w, i) {
			continue
		}
		n := t.node(i)
		if _, ok := trusted(n, t.now); !ok {
			continue
		}
		c := Candidate{Node: name, Free: t.free[i].CPU}
		if t.states[i] == nil {
			a := t.judge.ranked(n, kind, w, c.Free, t.now)
			if !a.fits {
				continue
			}
			c.Score = a.score
		} else {
			v := t.verdict(w, i)
			if v.Reason != Fits {
				continue
			}
			c.Score = t.judge.score(n, t.states[i].clone(), w, v, c.Free)
		}
		if at < 0 || c.Before(best) {
			best, at = c, i
		}
	}
	if at < 0 {
		return 0, nil, false
	}
	plan, ok := t.Fit(w, at)
	return at, plan, ok
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

// Take gives a pod a placement on a node.
func (t *Trial) Take(w PodRequest, i int, plan []Planned) {
	s := t.write(i)
	for _, c := range plan {
		s.take(w.UID, c.Placement)
	}
	t.free[i].CPU, t.free[i].Memory = t.free[i].CPU-w.CPU, t.free[i].Memory-min(w.Memory, t.free[i].Memory)
}

// Release gives back what a pod has on a node.
func (t *Trial) Release(w PodRequest, i int) {
	t.write(i).release(w.UID)
	t.free[i].CPU, t.free[i].Memory = t.free[i].CPU+w.CPU, t.free[i].Memory+w.Memory
}

// Withhold says whether GPUs of a node take nothing new.
func (t *Trial) Withhold(i int, gpus []int, withheld bool) {
	s := t.write(i)
	for _, k := range gpus {
		g := &s.gpus[k].GPU
		switch ref := g.Ref(); {
		case withheld && g.Health == sharing.HealthOK && g.Cordoned == "":
			t.withheld[ref] = true
			g.Cordoned, g.Health = "defragmentation", sharing.HealthUnknown
		case !withheld && t.withheld[ref]:
			delete(t.withheld, ref)
			g.Cordoned, g.Health = "", sharing.HealthOK
		}
	}
}
