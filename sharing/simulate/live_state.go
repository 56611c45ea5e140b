// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"slices"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	gpureport "github.com/kerf-gpu/kerf/sharing/allocator/report"
)

// stay reserves what the pod has. A pod that belongs to its node leaves the node that much smaller.
func (b *liveBuilder) stay(at int, p *LivePod, claims []gpunode.Grant) {
	// The kubelet of a node can have admitted more than it has: amounts above the capacity belong to no pod.
	cpu, memory := p.CPU, p.Memory
	for _, i := range b.partsFor(at, p.Node, claims) {
		n, left := &b.Nodes[i], &b.left[i]
		c, m := min(cpu, left.CPU), min(memory, left.Memory)
		left.CPU, left.Memory, cpu, memory = left.CPU-c, left.Memory-m, cpu-c, memory-m
		if p.Fixed {
			n.CPU, n.Memory = n.CPU-c, n.Memory.SubFloor(m)
		} else if c > 0 || m > 0 {
			b.There = append(b.There, There{i,
				cluster.Grant{Request: cluster.Request{Shape: cluster.Shape{CPU: c}, Memory: m}}})
		}
	}
	for _, c := range claims {
		b.claim(c)
	}
}

// partsFor are the parts of a node, in the order in which a pod takes their CPU and memory: where its GPU is comes
// first.
func (b *liveBuilder) partsFor(at int, name string, claims []gpunode.Grant) []int {
	var order []int
	for i := range b.parts[name] {
		order = append(order, at+i)
	}
	for _, c := range claims {
		for _, f := range c.Shares {
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

// unmanaged reserves what processes outside of pods use, and pods that are at their end.
func (b *liveBuilder) unmanaged(n *LiveNode) {
	if b.at[n.Name] < 0 || n.Report == nil || b.becomes[n.Name] {
		return
	}
	for _, c := range n.Report.Grants {
		if !b.seen[c.PodUID] {
			b.claim(c)
		}
	}
	for _, g := range n.Report.GPUs {
		at, known := b.gpus[g.UUID]
		if g.MIGState == nil || !known {
			continue
		}
		for _, i := range g.MIGState.Instances {
			if !i.Managed {
				b.instance(at, i.Profile, i.Start)
			}
		}
	}
}

// claim reserves a grant, GPU by GPU, since they need not be equal.
func (b *liveBuilder) claim(c gpunode.Grant) {
	for _, f := range c.Shares {
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
			b.There = append(b.There, There{at.node, cluster.Grant{Request: cluster.Request{Shape: shape},
				GPUs: []int{at.gpu}}})
		}
	}
}

// heldAs is a share on a GPU that has so much left; it takes nothing where there is nothing. Each part is rounded up,
// and GPUs of one node need not be equal, so that all together could come to more than there is.
func heldAs(n *cluster.Node, f gpunode.Share, left cluster.Milli) cluster.Shape {
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
	s := cluster.Shape{GPUs: 1, Share: cluster.Milli(f.Percent) * 10, GPUMemory: gpureport.Bytes(f.MemoryBytes)}
	if f.Whole {
		s.Share, s.GPUMemory = cluster.WholeGPU, n.GPUMemory
	}
	bookable := n.Overcommit.Memory.Of(n.GPUMemory)
	// The least is a byte, which is a thousandth once it is rounded up: there is that much left.
	s.GPUMemory = max(1, min(s.GPUMemory, n.GPUMemory, bookable/sharing.Bytes(cluster.WholeGPU)*sharing.Bytes(left)))
	s.Share = min(s.Share, left*cluster.Milli(max(n.Overcommit.Compute, 100))/100, cluster.WholeGPU)
	return s
}

// instance reserves a MIG instance; one that the simulation cannot place takes what is left of its GPU.
func (b *liveBuilder) instance(at slot, profile string, start int) {
	t := b.Nodes[at.node].Table
	s := cluster.Shape{GPUs: 1, Profile: profile}
	p, err := t.Lookup("profile", profile)
	next, ok := t.Try(b.instances[at], mig.Place{Profile: p.ID, Start: start})
	if err == nil && ok {
		b.instances[at] = next
		b.There = append(b.There, There{at.node, cluster.Grant{Request: cluster.Request{Shape: s}, GPUs: []int{at.gpu},
			Starts: []int{start}}})
		return
	}
	for _, p := range slices.Backward(t.Profiles()) {
		for _, start := range p.Starts {
			if next, ok := t.Try(b.instances[at], mig.Place{Profile: p.ID, Start: start}); ok {
				b.instances[at], s.Profile = next, p.Name
				b.There = append(b.There,
					There{at.node, cluster.Grant{Request: cluster.Request{Shape: s}, GPUs: []int{at.gpu},
						Starts: []int{start}}})
			}
		}
	}
}

// shareUnits are the units in which a GPU is granted. They follow the rules of its pool, as its kubelet counts, and the
// pool's minimum level. A profile that allows a lower level is not known here.
func shareUnits(g gpunode.GPU, offers map[string]int64) (p cluster.Modes, some bool) {
	parts, whole := given(fit(g, sharing.KindShared)), given(fit(g, sharing.KindWhole))
	counted, all := offers[sharing.ResourceMemory] > 0 || offers[sharing.ResourcePercent] > 0,
		offers[sharing.ResourceGPU] > 0
	if counted || all { // nothing at all is what a kubelet counts whose agent is away
		parts, whole = parts && counted, whole && all
	}
	switch {
	case parts && whole:
		return cluster.AllModes, true
	case parts:
		return cluster.PartsAlone, true
	}
	return cluster.WholeAlone, whole
}

// fit says whether the GPU answers a request of the kind, whatever its size.
func fit(g gpunode.GPU, kind sharing.Kind) allocator.Verdict {
	read, r := gpureport.GPU(g, 0), sharing.Request{Kind: kind, GPUs: 1}
	read.GPU.Memory, read.GPU.Reserved = sharing.MinShare, 0
	if kind == sharing.KindShared {
		r.Memory = sharing.MinShare
	}
	return allocator.Fit(read, r)
}

// given is false where the GPU is not given so, whatever is free of it.
func given(v allocator.Verdict) bool {
	switch v.Code {
	case allocator.NotShared, allocator.NotWhole, allocator.Unenforced, allocator.BelowPool:
		return false
	default:
		return true
	}
}

// unenforcedGPUs are the GPUs of a node that give no shares because no backend enforces them, by the reason.
type unenforcedGPUs struct {
	reasons []string
	count   []int
}

func (u *unenforcedGPUs) add(g gpunode.GPU) {
	if fit(g, sharing.KindShared).Code != allocator.Unenforced || g.Mode != "" && g.Mode != gpunode.ModeShared {
		return
	}
	i := slices.Index(u.reasons, g.LevelReason)
	if i < 0 {
		i, u.reasons, u.count = len(u.reasons), append(u.reasons, g.LevelReason), append(u.count, 0)
	}
	u.count[i]++
}

func (u *unenforcedGPUs) notes(node string) []string {
	var out []string
	for i, why := range u.reasons {
		if why != "" {
			why = " (" + why + ")"
		}
		out = append(out, fmt.Sprintf("node %s: %d of its GPUs give no shares, because no backend enforces them%s; %s",
			node, u.count[i], why, sharing.AllowUnenforced))
	}
	return out
}
