// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
)

type scoreKey struct {
	key       string
	cpu, free cluster.Milli
	era       uint64
}

// Score says how well a node that answers the pod suits it. The highest is best, and of equal ones the first name. The
// CPU that is free on the machine is free. It is 0 for a node that does not answer.
func (j *judge) Score(w PodRequest, name string, free cluster.Milli, now time.Time) int64 {
	v := j.Fit(w, name, now)
	n := j.nodes[name]
	if v.Reason != Fits {
		return 0
	}
	key := scoreKey{w.key, w.CPU, free, j.era}
	if k, ok := n.scores[key]; ok && k.version == n.version {
		return k.is
	}
	s := j.stateOf(n)
	if len(v.Plan) > 1 {
		s = s.clone()
	}
	sum := j.score(n, s, w, v, free)
	if len(n.scores) >= mostKept || n.scores == nil {
		n.scores = map[scoreKey]kept[int64]{}
	}
	n.scores[key] = kept[int64]{n.version, sum}
	return sum
}

// score adds up the policy's scores of the containers, which are taken from the state one after the other where there
// are several.
func (m *placer) score(n *node, s *state, w PodRequest, v Verdict, free cluster.Milli) int64 {
	sum := int64(0)
	for _, a := range w.Containers {
		p, ok := v.placement(a.Container)
		r, err := m.resolved(n, a)
		if !ok || err != nil {
			continue
		}
		on := s
		if s.mustSwitch(p) {
			on, sum = s.turned(r.Kind == sharing.KindMIG), sum-switchToll
		}
		if r.Kind == sharing.KindMIG {
			score, _ := m.instanceScore(n, on, r, p, w.CPU, free)
			sum += score
			if len(v.Plan) > 1 {
				s.take(w.UID, p)
			}
			continue
		}
		view, shape := n.view(on, r, w.CPU)
		view.CPU = free
		if r.Place == sharing.PlaceSpread {
			score, _ := cluster.Spread{}.Score(&view, shape)
			sum += score
		} else {
			score, _ := m.policy.Score(&view, shape)
			sum += score
		}
		if len(v.Plan) > 1 {
			s.take(w.UID, p)
		}
	}
	return sum
}

// Terms are the parts of a node's score, added up over the pod's containers. They are nil for a node that does not
// answer, and if the pod is to be spread. The free CPU is that of Score.
func (j *judge) Terms(w PodRequest, name string, free cluster.Milli, now time.Time) []cluster.Term {
	v := j.Fit(w, name, now)
	if v.Reason != Fits {
		return nil
	}
	return j.terms(j.nodes[name], j.stateOf(j.nodes[name]).clone(), w, v, free)
}

// terms takes what it looks at from the state.
func (m *placer) terms(n *node, s *state, w PodRequest, v Verdict, free cluster.Milli) []cluster.Term {
	var out []cluster.Term
	for _, a := range w.Containers {
		p, ok := v.placement(a.Container)
		r, err := m.resolved(n, a)
		if !ok || err != nil || r.Place == sharing.PlaceSpread {
			continue
		}
		var terms []cluster.Term
		on := s
		if s.mustSwitch(p) {
			on = s.turned(r.Kind == sharing.KindMIG)
		}
		if r.Kind == sharing.KindMIG {
			_, terms = m.instanceScore(n, on, r, p, w.CPU, free)
		} else {
			view, shape := n.view(on, r, w.CPU)
			view.CPU = free
			terms = m.policy.Terms(&view, shape)
		}
		for _, t := range terms {
			if i := slices.IndexFunc(out, func(o cluster.Term) bool { return o.Name == t.Name }); i >= 0 {
				out[i].Value += t.Value
			} else {
				out = append(out, t)
			}
		}
		s.take(w.UID, p)
	}
	return out
}

func (v Verdict) placement(container string) (sharing.Placement, bool) {
	for _, c := range v.Plan {
		if c.Container == container {
			return c.Placement, true
		}
	}
	return nil, false
}

// shapeOf is a request as policies see it.
func shapeOf(r sharing.Request, cpu cluster.Milli) cluster.Shape {
	s := cluster.Shape{CPU: cpu, GPUs: r.GPUs, Share: cluster.WholeGPU,
		Models: strings.Join(append(append([]string{}, r.Models...), r.ProfileModels...), "|"), Level: r.MinLevel}
	switch r.Kind {
	case sharing.KindShared:
		memory, percent := r.Each()
		s.Share, s.GPUMemory = cluster.Milli(percent)*10, memory
	case sharing.KindMIG:
		s.Profile, s.Share = r.MIG, 0
		// Where no GPU says how large it is, it counts by its compute slices, of which most GPUs have seven.
		if w, err := mig.ParseWish("mig", r.MIG); err == nil {
			s.Share = min(cluster.Milli(w.Compute)*cluster.WholeGPU/7, cluster.WholeGPU)
		}
	case sharing.KindWhole:
	}
	return s
}

// view is the node as policies see it: what is free in thousandths. Thousandths are coarser than bytes, so that what
// fits the request exactly, and nothing else, is made to fit it there. The free CPU is that of the empty machine.
func (n *node) view(s *state, r sharing.Request, cpu cluster.Milli) (cluster.Node, cluster.Shape) {
	out := n.empty(n.report.gpus)
	shape := shapeOf(r, cpu)
	share := shape.Share
	for i, g := range s.gpus {
		if part := milli(r.On(g.GPU).Memory, g.GPU.Bookable(), true); r.Kind == sharing.KindShared {
			share = max(share, part)
		}
		out.GPUs[i] = min(cluster.Milli(g.FreePercent)*10, cluster.WholeGPU)
		if !g.GPU.SystemMemory {
			out.GPUs[i] = min(out.GPUs[i], milli(g.FreeMemory, g.GPU.Bookable(), false))
		}
	}
	// The share is in thousandths, so that each GPU takes the same whatever its size.
	shape.Share, shape.GPUMemory, shape.Models, shape.Level = min(share, cluster.WholeGPU), 0, "", sharing.LevelUnknown
	for i := range s.gpus {
		if allocator.Fit(s.gpus[i], one(r)).Fits() {
			out.GPUs[i] = max(out.GPUs[i], shape.Share)
		} else {
			out.GPUs[i] = min(out.GPUs[i], shape.Share-1)
		}
	}
	return out, shape
}

// one is the part of a request that a single GPU answers.
func one(r sharing.Request) sharing.Request {
	r.Memory, r.Percent = r.Each()
	r.GPUs = 1
	return r
}

// parts are the node as policies see it with nothing taken. Its GPUs in MIG mode are apart from the others, and each
// part has its share of the CPU.
func (n *node) parts() []cluster.Node {
	all := n.report.gpus
	cut := func(g allocator.GPUState) *migGPU {
		if c := n.report.migGPUs[g.GPU.Ref()]; c != nil && c.on {
			return c
		}
		return nil
	}
	if !slices.ContainsFunc(all, func(g allocator.GPUState) bool { return cut(g) != nil }) {
		return []cluster.Node{n.empty(all)}
	}
	var out []cluster.Node
	add := func(part cluster.Node, gpus int) {
		part.CPU = n.machine.CPU * cluster.Milli(gpus) / cluster.Milli(len(all))
		out = append(out, part)
	}
	whole := slices.DeleteFunc(slices.Clone(all), func(g allocator.GPUState) bool { return cut(g) != nil })
	if len(whole) > 0 {
		add(n.empty(whole), len(whole))
	}
	for _, kind := range slices.Compact(n.report.geometries()) {
		of := slices.DeleteFunc(slices.Clone(all), func(g allocator.GPUState) bool {
			c := cut(g)
			return c == nil || c.geometry != kind
		})
		if kind == nil || len(of) == 0 ||
			slices.ContainsFunc(out, func(o cluster.Node) bool { return o.Table == kind.table }) {
			continue
		}
		part := kind.node
		part.Name, part.Model, part.Memory, part.GPUMemory = n.name, of[0].GPU.Model, n.machine.Memory,
			of[0].GPU.Usable()
		part.SetMIG(make([]mig.Occupancy, len(of)))
		add(part, len(of))
	}
	return out
}

// empty is these GPUs of the node as policies see them with nothing taken.
func (n *node) empty(gpus []allocator.GPUState) cluster.Node {
	out := cluster.Node{Name: n.name, CPU: n.machine.CPU, Memory: n.machine.Memory,
		GPUs: make([]cluster.Milli, len(gpus))}
	for i, g := range gpus {
		if i == 0 {
			out.Model = g.GPU.Model
		}
		out.GPUs[i] = cluster.WholeGPU
		if usable := g.GPU.Usable(); usable > 0 && (out.GPUMemory == 0 || usable < out.GPUMemory) {
			out.GPUMemory = usable
		}
		out.Level = max(out.Level, g.ShareLevel())
		out.Topology = append(out.Topology, cluster.Place{NUMA: g.GPU.NUMA, NVLink: clique(gpus, i)})
	}
	return out
}

// clique is the first GPU that this one reaches over NVLink, or itself.
func clique(gpus []allocator.GPUState, i int) int {
	for j := range gpus[:i] {
		if slices.Contains(gpus[i].GPU.NVLinks, gpus[j].GPU.UUID) && !gpus[j].GPU.Ref().IsInstance() {
			return j
		}
	}
	return i
}

// milli is a part of the whole in thousandths, rounded up or down, at most all of it.
func milli(part, whole sharing.Bytes, up bool) cluster.Milli {
	if whole == 0 {
		return 0
	}
	if part >= whole {
		return cluster.WholeGPU
	}
	high, low := bits.Mul64(uint64(part), uint64(cluster.WholeGPU))
	q, rest := bits.Div64(high, low, uint64(whole)) // part < whole, so that the quotient is below 1000
	if up && rest > 0 {
		q++
	}
	return cluster.Milli(q) //nolint:gosec // at most 1000
}
