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
		share := max(part(f, n.GPUMemory), cluster.Milli(f.Percent)*10)
		if f.Whole {
			share = cluster.WholeGPU
		}
		// Each part is rounded up, so that many small ones can come to more than a GPU.
		if share = min(share, left.GPUs[gpu]); share > 0 {
			left.GPUs[gpu] -= share
			b.There = append(b.There, There{at, cluster.Claim{Request: cluster.Request{Shape: cluster.Shape{GPUs: 1, Share: share}}, GPUs: []int{gpu}}})
		}
	}
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

// part is the fragment's part of the GPU's memory, rounded up.
func part(f gpunode.Fragment, whole sharing.Bytes) cluster.Milli {
	// In MiB, so that no product leaves 64 bits.
	of, has := uint64(whole>>20), (f.MemoryBytes+1<<20-1)>>20
	if of == 0 {
		return cluster.WholeGPU
	}
	return cluster.Milli(min((has*uint64(cluster.WholeGPU)+of-1)/of, uint64(cluster.WholeGPU)))
}
