// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	gpureport "github.com/kerf-gpu/kerf/sharing/allocator/report"
	"github.com/kerf-gpu/kerf/sharing/config"
)

// Answer is what one node would say to a pod.
type Answer struct {
	Node string
	Verdict
	// Score and Terms are there where it fits; the highest score is the best.
	Score int64
	Terms []cluster.Term
}

// Answers are those of all nodes with a report, as if the pod itself had no grant. Nodes that fit come first, the best
// before the others and equal ones by name, as they would be chosen. Then come the others by their reasons. The CPU
// that each machine has without the pod is free; a node that is not in it counts as empty.
func (j *judge) Answers(w PodRequest, free map[string]cluster.Milli, now time.Time) []Answer {
	j.refresh()
	var out []Answer
	for name, n := range j.nodes {
		if n.report == nil {
			continue
		}
		a := Answer{Node: name}
		var ok bool
		if a.Verdict, ok = trusted(n, now); ok {
			s := j.stateOf(n).clone()
			s.release(w.UID)
			a.Verdict = j.fit(n, s, w, now)
			if a.Reason == Fits {
				cpu, known := free[name]
				if !known {
					cpu = n.machine.CPU
				}
				a.Score = j.score(n, s.clone(), w, a.Verdict, cpu)
				a.Terms = j.terms(n, s, w, a.Verdict, cpu)
			}
		}
		out = append(out, a)
	}
	slices.SortFunc(out, func(x, y Answer) int {
		return cmp.Or(cmp.Compare(rank(x), rank(y)), cmp.Compare(y.Score, x.Score), cmp.Compare(x.Reason, y.Reason),
			cmp.Compare(x.Node, y.Node))
	})
	return out
}

func rank(a Answer) int {
	if a.Reason == Fits {
		return 0
	}
	return 1
}

// Standing is what the cluster state has of a pod that is on a node.
type Standing struct {
	Node string
	// Plan has what its Binding named for each container, GPU by GPU, as sharing.PlacementValue writes it; empty for
	// one that was placed by others.
	Plan map[string][]string
	// Has is what its node has reported for it last; nil before that.
	Has sharing.Placement
	// Unplaced is why its node has no room for it; empty where it has.
	Unplaced string
}

// Standing is false for a pod that is on no node.
func (x *inventory) Standing(uid string) (Standing, bool) {
	p := x.pods[uid]
	if p == nil {
		return Standing{}, false
	}
	s := Standing{Node: p.node, Plan: map[string][]string{}, Has: p.seen.Clone()}
	for container, a := range p.plan {
		for _, ref := range a.Refs() {
			s.Plan[container] = append(s.Plan[container], ref.String())
		}
	}
	if n := x.nodes[p.node]; n != nil && n.report != nil && !n.claimed(p) {
		s.Unplaced = n.report.unplaced[uid]
	}
	return s, true
}

// Needs is what the pod requests, in the words of who wrote it.
func (w PodRequest) Needs() string { return needs(w.Containers) }

// report is a node's GPUNode as the cluster state reads it.
type report struct {
	pool     string
	ready    bool
	notReady string
	// torn is true when the fingerprint is not that of the claims: one of both is old, or forged.
	torn bool
	// gpus are in the order of their index.
	gpus []allocator.GPUState
	// migGPUs are the GPUs in MIG mode.
	migGPUs map[sharing.GPURef]*migGPU
	// claims are the shares of each pod's grants, by its UID. An agent reserves for all containers of a pod at once.
	claims map[string]sharing.Placement
	// holders counts the claims on each GPU, those of no pod too.
	holders map[sharing.GPURef]int
	// byClaim are the GPUs that pods get by ResourceClaim only.
	byClaim map[sharing.GPURef]bool
	// unplaced says what is missing for the pods that wait on the node for room, by UID.
	unplaced map[string]string
}

func (d *reader) readReport(s gpunode.Status) *report {
	r := &report{
		pool: s.Pool, ready: s.Ready(), torn: s.Fingerprint != gpunode.Fingerprint(s.Grants),
		migGPUs: map[sharing.GPURef]*migGPU{}, claims: map[string]sharing.Placement{},
		holders:  map[sharing.GPURef]int{},
		unplaced: map[string]string{}, byClaim: map[sharing.GPURef]bool{},
	}
	for _, u := range s.PendingPods {
		r.unplaced[u.PodUID] = u.Reason
	}
	if !s.Ready() {
		r.notReady, _, _ = strings.Cut(s.Condition(gpunode.ConditionReady).Message, "\n")
	}
	for _, g := range s.GPUs {
		ref := gpureport.Ref(g.UUID)
		r.byClaim[ref] = g.Mode == gpunode.ModeDRA
		if c := d.noPlaceReason(g); c != nil {
			c.byClaim = r.byClaim[ref]
			r.migGPUs[ref] = c
		}
	}
	for _, c := range s.Grants {
		var p sharing.Placement
		for _, f := range c.Shares {
			one := sharing.Share{GPU: gpureport.Ref(f.GPU), Memory: gpureport.Bytes(f.MemoryBytes),
				Percent: gpureport.Percent(f.Percent), Whole: f.Whole}
			r.holders[one.GPU]++
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
		r.gpus = append(r.gpus, gpureport.GPU(g, r.holders[gpureport.Ref(g.UUID)]))
	}
	slices.SortFunc(r.gpus, func(a, b allocator.GPUState) int { return a.GPU.Compare(&b.GPU) })
	r.gpus = slices.CompactFunc(r.gpus, func(a, b allocator.GPUState) bool { return a.GPU.Ref() == b.GPU.Ref() })
	link(r.gpus, s.GPUs)
	return r
}

// claimed is the instance of a claim.
func (r *report) claimed(gpu sharing.GPURef, profile string, start int, pod bool) sharing.Instance {
	c := r.migGPUs[gpu]
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
	cliques := map[sharing.GPURef]int{}
	for _, g := range from {
		if g.NVLinkClique != nil {
			cliques[gpureport.Ref(g.UUID)] = *g.NVLinkClique
		}
	}
	for i := range gpus {
		mine, linked := cliques[gpus[i].GPU.Ref()]
		for j := range gpus {
			if its, ok := cliques[gpus[j].GPU.Ref()]; linked && ok && i != j && its == mine {
				gpus[i].GPU.NVLinks = append(gpus[i].GPU.NVLinks, gpus[j].GPU.UUID)
			}
		}
	}
}

// rules complete requests, and refuse some.
type rules struct {
	// config is that of the agents; nil when there is none.
	config *config.Config
}

// permitted is false where a rule of a profile refuses the pod now, whatever the node.
func (u *rules) permitted(w PodRequest, now time.Time) (Verdict, bool) {
	if u.config == nil {
		return Verdict{}, true
	}
	for _, a := range w.Containers {
		if err := u.config.Permit(a.Request.Profile, w.Namespace, now); err != nil {
			return Verdict{Reason: Refused, Text: err.Error(), Container: a.Container}, false
		}
	}
	return Verdict{}, true
}

// permittedMemory is the verdict, or a refusal where the containers together have more memory than a profile gives one
// pod.
func (u *rules) permittedMemory(w PodRequest, v Verdict) Verdict {
	if u.config == nil {
		return v
	}
	totals := map[string]sharing.Bytes{}
	for _, c := range v.Plan {
		i := slices.IndexFunc(w.Containers, func(a ContainerRequest) bool { return a.Container == c.Container })
		if i < 0 {
			continue
		}
		profile := w.Containers[i].Request.Profile
		memory, _ := c.Placement.Total()
		sum, err := totals[profile].Add(memory)
		if err == nil {
			err = u.config.PermitMemory(profile, sum)
		}
		if err != nil {
			return Verdict{Reason: Refused, Text: err.Error(), Container: c.Container}
		}
		totals[profile] = sum
	}
	return v
}
