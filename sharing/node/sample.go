// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// picture is what the driver and the kernel said of use, at one moment.
type picture struct {
	gpus map[sharing.GPUID]Sample
	// pids are the processes of each lease's cgroup and its children.
	pids map[ledger.ClaimID][]int
	// capped is the driver's own count of what a cgroup uses of a GPU, where a limit is in force.
	capped map[capKey]sharing.Bytes
	// strangers has, for a GPU that was granted whole, the processes on it that are not the grant's.
	strangers map[sharing.GPUID][]int
	// unlisted is a GPU's unattributed memory, where that is much; beyondList is what this picture alone shows of it.
	unlisted, beyondList map[sharing.GPUID]sharing.Bytes
}

type capKey struct {
	claim ledger.ClaimID
	gpu   sharing.GPUID
}

// sampler takes at most one picture at a time and hands a fresh one to all who ask meanwhile.
type sampler struct {
	mu   sync.Mutex
	last picture
	at   time.Time
	// changes is how many changes of state there had been: a picture from before the last one is old.
	changes uint64
}

// sample returns a picture no older than sampleAge at the time of the call. What the driver does not answer
// in time is left out: it is then unknown, never zero.
func (r *Runtime) sample(ctx context.Context) picture {
	r.sampler.mu.Lock()
	defer r.sampler.mu.Unlock()
	now := r.changed.seen()
	if r.sampler.changes == now && time.Since(r.sampler.at) < sampleAge {
		return r.sampler.last
	}
	// Others get this picture too: a caller that leaves must not leave them an empty one.
	ctx = context.WithoutCancel(ctx)
	r.mu.Lock()
	att := r.att
	grants := r.ledger.Grants()
	held := maps.Clone(r.held)
	counted := countings(grants, r.held)
	r.mu.Unlock()

	p := picture{gpus: map[sharing.GPUID]Sample{}, pids: map[ledger.ClaimID][]int{}, capped: map[capKey]sharing.Bytes{}, strangers: map[sharing.GPUID][]int{}}
	for _, g := range grants {
		if g.Lease == nil {
			continue
		}
		if pids, err := held[g.Claim.ID].group.Procs(); err == nil {
			p.pids[g.Claim.ID] = pids
		}
	}
	if att != nil {
		r.ask(ctx, att, grants, &p)
	}
	r.findStrangers(grants, &p)
	if att != nil {
		p.setUnlisted(r.sampler.last, att.GPUs, managedIn(counted))
	}
	r.sampler.last, r.sampler.at, r.sampler.changes = p, time.Now(), now
	return p
}

// ask reads the driver, all GPUs at once, so that one that hangs delays nobody by more than its deadline.
func (r *Runtime) ask(ctx context.Context, att *Attachment, grants []ledger.Grant, p *picture) {
	ctx, cancel := context.WithTimeout(ctx, sampleDeadline)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, g := range att.GPUs {
		wg.Go(func() {
			s, err := att.Driver.Sample(ctx, g.UUID)
			if err == nil {
				mu.Lock()
				p.gpus[g.UUID] = s
				mu.Unlock()
			}
			if att.Caps == nil {
				return
			}
			for _, gr := range grants {
				if gr.Lease == nil || !capsFragmentOn(gr, g.UUID) {
					continue
				}
				if _, used, err := att.Caps.Read(ctx, gr.Lease.Cgroup, g.UUID); err == nil {
					mu.Lock()
					p.capped[capKey{gr.Claim.ID, g.UUID}] = used
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
}

// findStrangers looks for processes on the GPUs that no lease accounts for. The list of a lease's processes
// is a moment older than the driver's, so the cgroup of each that is on no list is asked for again.
func (r *Runtime) findStrangers(grants []ledger.Grant, p *picture) {
	known := map[int]bool{}
	for _, pids := range p.pids {
		for _, pid := range pids {
			known[pid] = true
		}
	}
	for gpu, s := range p.gpus {
		for _, use := range s.Processes {
			if known[use.PID] {
				continue
			}
			dir, err := r.opt.Cgroups.OfProcess(use.PID)
			if err != nil || leasedOn(grants, gpu, dir) || r.ofDaemons(dir) {
				continue // gone meanwhile, a grant's own, or what serves grants
			}
			p.strangers[gpu] = append(p.strangers[gpu], use.PID)
		}
		slices.Sort(p.strangers[gpu])
	}
	for gpu, s := range p.gpus {
		p.strangers[gpu] = append(p.strangers[gpu], trespassers(grants, p.pids, gpu, s)...)
	}
}

// leasedOn reports whether the cgroup belongs to a lease with a fragment on that GPU.
func leasedOn(grants []ledger.Grant, gpu sharing.GPUID, dir string) bool {
	return slices.ContainsFunc(grants, func(g ledger.Grant) bool { return leaseHas(g, gpu, dir) })
}

// trespassers are processes of leases that have no fragment on the GPU that they use.
func trespassers(grants []ledger.Grant, pids map[ledger.ClaimID][]int, gpu sharing.GPUID, s Sample) []int {
	var out []int
	for _, g := range grants {
		if touches(g.Claim.Placement, gpu) {
			continue
		}
		for _, use := range s.Processes {
			if slices.Contains(pids[g.Claim.ID], use.PID) {
				out = append(out, use.PID)
			}
		}
	}
	return out
}

// touches reports whether a placement has a fragment on the GPU. One on a MIG instance counts for all of its GPU: who uses
// it is on the GPU's own list, too, and a driver may not say on which instance a process is.
func touches(p sharing.Placement, gpu sharing.GPUID) bool {
	return slices.ContainsFunc(p, func(f sharing.Fragment) bool { return f.GPU.Device() == gpu.Device() })
}

func capsFragmentOn(g ledger.Grant, gpu sharing.GPUID) bool {
	if g.Claim.Level != sharing.LevelDriver {
		return false
	}
	for _, f := range g.InForce() {
		if f.GPU == gpu && !f.Whole {
			return true
		}
	}
	return false
}

// used is what a lease uses of one GPU: the driver's own count where a limit is in force, else the sum over
// the cgroup's processes. Known is false when either cannot be told in full.
func (p picture) used(id ledger.ClaimID, gpu sharing.GPUID) (sharing.Bytes, bool) {
	if used, ok := p.capped[capKey{id, gpu}]; ok {
		return used, true
	}
	return p.byProcess(id, gpu)
}

// byProcess is the sum over the cgroup's processes, whatever the driver's limit counts.
func (p picture) byProcess(id ledger.ClaimID, gpu sharing.GPUID) (sharing.Bytes, bool) {
	s, ok := p.gpus[gpu]
	pids, listed := p.pids[id]
	if !ok || !listed {
		return 0, false
	}
	ours := make(map[int]bool, len(pids))
	for _, pid := range pids {
		ours[pid] = true
	}
	var sum sharing.Bytes
	for _, use := range s.Processes {
		if !ours[use.PID] {
			continue
		}
		var err error
		if sum, err = sum.Add(use.Used); err != nil || !use.Known {
			return 0, false
		}
	}
	return sum, true
}
