// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"slices"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
)

// stay books what the pod holds. A pod that belongs to its node leaves the node that much smaller.
func (b *liveBuilder) stay(at int, p *LivePod, claims []gpunode.Claim) {
	// The kubelet of a node can have admitted more than it has: what there is not, nobody holds.
	cpu, memory := p.CPU, p.Memory
	for _, i := range b.partsFor(at, p.Node, claims) {
		n, left := &b.Nodes[i], &b.left[i]
		c, m := min(cpu, left.CPU), min(memory, left.Memory)
		left.CPU, left.Memory, cpu, memory = left.CPU-c, left.Memory-m, cpu-c, memory-m
		if p.Fixed {
			n.CPU, n.Memory = n.CPU-c, n.Memory.SubFloor(m)
		} else if c > 0 || m > 0 {
			b.There = append(b.There, There{i, cluster.Claim{Request: cluster.Request{Shape: cluster.Shape{CPU: c}, Memory: m}}})
		}
	}
	for _, c := range claims {
		b.fragments(c)
	}
}

// partsFor are the parts of a node, in the order in which a pod takes their CPU and memory: where its GPU is comes first.
func (b *liveBuilder) partsFor(at int, name string, claims []gpunode.Claim) []int {
	var order []int
	for i := range b.parts[name] {
		order = append(order, at+i)
	}
	for _, c := range claims {
		for _, f := range c.Fragments {
			if k := slices.Index(order, b.gpus[f.GPU].node); k > 0 && b.knows(f.GPU) {
				order[0], order[k] = order[k], order[0]
				return order
			}
		}
	}
	return order
}

// knows tells whether a GPU is among those of Nodes.
func (b *liveBuilder) knows(gpu string) bool {
	_, known := b.gpus[gpu]
	return known
}

// strangers books what processes outside of pods hold, and pods that are at their end.
func (b *liveBuilder) strangers(n *LiveNode) {
	if b.at[n.Name] < 0 || n.Report == nil || b.becomes[n.Name] {
		return
	}
	for _, c := range n.Report.Claims {
		if !b.seen[c.PodUID] {
			b.fragments(c)
		}
	}
	for _, g := range n.Report.GPUs {
		at, known := b.gpus[g.UUID]
		if g.MIGState == nil || !known {
			continue
		}
		for _, i := range g.MIGState.Instances {
			if i.Foreign {
				b.instance(at, i.Profile, i.Start)
			}
		}
	}
}

// fragments books a claim, GPU by GPU, since they need not be equal.
func (b *liveBuilder) fragments(c gpunode.Claim) {
	for _, f := range c.Fragments {
		at, known := b.gpus[f.GPU]
		if !known {
			continue
		}
		n, left := &b.Nodes[at.node], &b.left[at.node].GPUs[at.gpu]
		if n.Table != nil {
			b.instance(at, f.MIGProfile, f.MIGStart)
			continue
		}
		if shape := heldAs(n, f, *left); shape.GPUs > 0 {
			*left -= n.Resolve(shape).Share
			b.There = append(b.There, There{at.node, cluster.Claim{Request: cluster.Request{Shape: shape}, GPUs: []int{at.gpu}}})
		}
	}
}

// heldAs is a fragment on a GPU that has so much left; it takes nothing where there is nothing. Each part is rounded up, and GPUs
// of one node need not be equal, so that all together could come to more than there is.
func heldAs(n *cluster.Node, f gpunode.Fragment, left cluster.Milli) cluster.Shape {
	all := cluster.Shape{GPUs: 1, Share: cluster.WholeGPU}
	switch {
	case left <= 0:
		return cluster.Shape{}
	case f.Whole && left >= cluster.WholeGPU:
		return all
	case n.GPUMemory == 0:
		all.Share = left
		return all
	}
	s := cluster.Shape{GPUs: 1, Share: cluster.Milli(f.Percent) * 10, GPUMemory: sharing.Bytes(f.MemoryBytes)}
	if f.Whole {
		s.Share, s.GPUMemory = cluster.WholeGPU, n.GPUMemory
	}
	bookable := n.Overcommit.Memory.Of(n.GPUMemory)
	// The least is a byte, which is a thousandth once it is rounded up: there is that much left.
	s.GPUMemory = max(1, min(s.GPUMemory, n.GPUMemory, bookable/sharing.Bytes(cluster.WholeGPU)*sharing.Bytes(left)))
	s.Share = min(s.Share, left*cluster.Milli(max(n.Overcommit.Compute, 100))/100, cluster.WholeGPU)
	return s
}

// instance books a MIG instance; one that the simulation cannot place takes what is left of its GPU.
func (b *liveBuilder) instance(at slot, profile string, start int) {
	t := b.Nodes[at.node].Table
	s := cluster.Shape{GPUs: 1, Profile: profile}
	p, err := t.Lookup("profile", profile)
	next, ok := t.Try(b.instances[at], mig.Place{Profile: p.ID, Start: start})
	if err == nil && ok {
		b.instances[at] = next
		b.There = append(b.There, There{at.node, cluster.Claim{Request: cluster.Request{Shape: s}, GPUs: []int{at.gpu}, Starts: []int{start}}})
		return
	}
	for _, p := range slices.Backward(t.Profiles()) {
		for _, start := range p.Starts {
			if next, ok := t.Try(b.instances[at], mig.Place{Profile: p.ID, Start: start}); ok {
				b.instances[at], s.Profile = next, p.Name
				b.There = append(b.There, There{at.node, cluster.Claim{Request: cluster.Request{Shape: s}, GPUs: []int{at.gpu}, Starts: []int{start}}})
			}
		}
	}
}
