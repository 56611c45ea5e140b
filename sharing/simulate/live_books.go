// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"github.com/kerf-gpu/kerf/api/gpunode"
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
}

// fragments books a claim, GPU by GPU, since they need not be equal.
func (b *liveBuilder) fragments(at int, c gpunode.Claim) {
	n, left := &b.Nodes[at], &b.left[at]
	for _, f := range c.Fragments {
		gpu, known := b.gpus[f.GPU]
		if !known || gpu >= len(n.GPUs) {
			continue
		}
		share := max(part(f, n.GPUMemory), cluster.Milli(f.Percent)*10)
		if f.Whole || n.Table != nil {
			share = cluster.WholeGPU
		}
		// Each part is rounded up, so that many small ones can come to more than a GPU.
		if share = min(share, left.GPUs[gpu]); share > 0 {
			left.GPUs[gpu] -= share
			b.There = append(b.There, There{at, cluster.Claim{Request: cluster.Request{Shape: cluster.Shape{GPUs: 1, Share: share}}, GPUs: []int{gpu}}})
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
