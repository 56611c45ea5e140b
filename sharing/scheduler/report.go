// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"
	"slices"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator"
	gpureport "github.com/kerf-gpu/kerf/sharing/allocator/report"
)

// report is a node's GPUNode as the books read it.
type report struct {
	pool     string
	ready    bool
	notReady string
	// torn is true when the fingerprint is not that of the claims: one of both is old, or forged.
	torn bool
	// gpus are in the order of their index.
	gpus []allocator.GPUState
	// cuts has those in MIG mode.
	cuts map[sharing.GPUID]*cut
	// claims are the fragments of each pod's claims, by its UID. An agent claims for all containers of a pod at once.
	claims map[string]sharing.Placement
	// holders counts the claims on each GPU, those of no pod too.
	holders map[sharing.GPUID]int
	// unplaced says what is missing for the pods that wait on the node for room, by UID.
	unplaced map[string]string
}

func (d *reader) readReport(s gpunode.Status) *report {
	r := &report{
		pool: s.Pool, ready: s.Ready, torn: s.Fingerprint != gpunode.Fingerprint(s.Claims),
		cuts: map[sharing.GPUID]*cut{}, claims: map[string]sharing.Placement{}, holders: map[sharing.GPUID]int{}, unplaced: map[string]string{},
	}
	for _, u := range s.Unplaced {
		r.unplaced[u.PodUID] = u.Reason
	}
	if len(s.NotReady) > 0 {
		r.notReady = s.NotReady[0]
	}
	for _, g := range s.GPUs {
		if c := d.cutOf(g); c != nil {
			r.cuts[sharing.GPUID(g.UUID)] = c
		}
	}
	for _, c := range s.Claims {
		var p sharing.Placement
		for _, f := range c.Fragments {
			r.holders[sharing.GPUID(f.GPU)]++
			one := sharing.Fragment{GPU: sharing.GPUID(f.GPU), Memory: sharing.Bytes(f.MemoryBytes), Percent: gpureport.Percent(f.Percent), Whole: f.Whole}
			if f.MIGProfile != "" {
				one.MIG = r.claimed(one.GPU, f.MIGProfile, f.MIGStart, c.PodUID != "")
			}
			p = append(p, one)
		}
		if c.PodUID != "" {
			r.claims[c.PodUID] = append(r.claims[c.PodUID], p...)
		}
	}
	for _, g := range s.GPUs {
		r.gpus = append(r.gpus, gpureport.GPU(g, r.holders[sharing.GPUID(g.UUID)]))
	}
	slices.SortFunc(r.gpus, func(a, b allocator.GPUState) int {
		return cmp.Or(cmp.Compare(a.GPU.Index, b.GPU.Index), cmp.Compare(a.GPU.UUID, b.GPU.UUID))
	})
	r.gpus = slices.CompactFunc(r.gpus, func(a, b allocator.GPUState) bool { return a.GPU.UUID == b.GPU.UUID })
	link(r.gpus, s.GPUs)
	return r
}

// claimed is the instance of a claim.
func (r *report) claimed(gpu sharing.GPUID, profile string, start int, pod bool) sharing.Instance {
	c := r.cuts[gpu]
	in := c.instance(profile, start)
	if c != nil {
		c.must(in)
		if !pod {
			c.others = append(c.others, mig.Place{Profile: in.ID, Start: in.Start})
		}
	}
	return in
}

// link makes of the cliques what the choice of whole GPUs reads: which GPU reaches which over NVLink.
func link(gpus []allocator.GPUState, from []gpunode.GPU) {
	cliques := map[sharing.GPUID]int{}
	for _, g := range from {
		if g.NVLinkClique != nil {
			cliques[sharing.GPUID(g.UUID)] = *g.NVLinkClique
		}
	}
	for i := range gpus {
		mine, linked := cliques[gpus[i].GPU.UUID]
		for j := range gpus {
			if its, ok := cliques[gpus[j].GPU.UUID]; linked && ok && i != j && its == mine {
				gpus[i].GPU.NVLinks = append(gpus[i].GPU.NVLinks, gpus[j].GPU.UUID)
			}
		}
	}
}
