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
	n, left := &b.Nodes[at], &b.left[at]
	// The kubelet of a node can have admitted more than it has: what there is not, nobody holds.
	cpu, memory := min(p.CPU, left.CPU), min(p.Memory, left.Memory)
	left.CPU, left.Memory = left.CPU-cpu, left.Memory-memory
	if p.Fixed {
		n.CPU, n.Memory = n.CPU-cpu, n.Memory.SubFloor(memory)
	} else if cpu > 0 || memory > 0 {
		b.There = append(b.There, There{at, cluster.Claim{Request: cluster.Request{Shape: cluster.Shape{CPU: cpu}, Memory: memory}}})
	}
	for _, c := range claims {
		b.fragments(at, c)
	}
}

// strangers books what processes outside of pods hold, and pods that are at their end.
func (b *liveBuilder) strangers(n *LiveNode) {
	at := b.at[n.Name]
	if at < 0 || n.Report == nil || b.becomes[n.Name] {
		return
	}
	for _, c := range n.Report.Claims {
		if !b.seen[c.PodUID] {
			b.fragments(at, c)
		}
	}
	for _, g := range n.Report.GPUs {
		gpu, known := b.gpus[g.UUID]
		if g.MIGState == nil || !known {
			continue
		}
		for _, i := range g.MIGState.Instances {
			if i.Foreign {
				b.instance(at, gpu, i.Profile, i.Start)
			}
		}
	}
}

// fragments books a claim, GPU by GPU, since they need not be equal.
func (b *liveBuilder) fragments(at int, c gpunode.Claim) {
	n, left := &b.Nodes[at], &b.left[at]
	for _, f := range c.Fragments {
		gpu, known := b.gpus[f.GPU]
		if !known || gpu >= len(n.GPUs) {
			continue
		}
		if n.Table != nil {
			b.instance(at, gpu, f.MIGProfile, f.MIGStart)
			continue
		}
		if shape := heldAs(n, f, left.GPUs[gpu]); shape.GPUs > 0 {
			left.GPUs[gpu] -= n.Resolve(shape).Share
			b.There = append(b.There, There{at, cluster.Claim{Request: cluster.Request{Shape: shape}, GPUs: []int{gpu}}})
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
func (b *liveBuilder) instance(at, gpu int, profile string, start int) {
	t, key := b.Nodes[at].Table, [2]int{at, gpu}
	s := cluster.Shape{GPUs: 1, Profile: profile}
	p, err := t.Lookup("profile", profile)
	next, ok := t.Try(b.instances[key], mig.Place{Profile: p.ID, Start: start})
	if err == nil && ok {
		b.instances[key] = next
		b.There = append(b.There, There{at, cluster.Claim{Request: cluster.Request{Shape: s}, GPUs: []int{gpu}, Starts: []int{start}}})
		return
	}
	for _, p := range slices.Backward(t.Profiles()) {
		for _, start := range p.Starts {
			if next, ok := t.Try(b.instances[key], mig.Place{Profile: p.ID, Start: start}); ok {
				b.instances[key], s.Profile = next, p.Name
				b.There = append(b.There, There{at, cluster.Claim{Request: cluster.Request{Shape: s}, GPUs: []int{gpu}, Starts: []int{start}}})
			}
		}
	}
}
