// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/listing"
	"github.com/kerf-gpu/kerf/sharing/lists"
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
	// looks say to whom the driver's lists belong, for each GPU that answered, and ended what processes held that have ended.
	looks map[sharing.GPUID]lists.Look
	ended map[capKey]endedUse
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
	owners := r.owners(grants)
	r.mu.Unlock()

	p := picture{gpus: map[sharing.GPUID]Sample{}, pids: map[ledger.ClaimID][]int{}, capped: map[capKey]sharing.Bytes{}, strangers: map[sharing.GPUID][]int{}, looks: map[sharing.GPUID]lists.Look{}}
	for _, o := range owners {
		if pids, err := o.Procs(); err == nil {
			p.pids[ledger.ClaimID(o.Owner)] = pids
		}
	}
	if att != nil {
		looks := r.lists.Judge(r.ask(ctx, att, grants, &p), owners)
		for _, l := range looks {
			p.looks[l.GPU] = l
		}
		p.ended = endedUses(r.lists, looks, owners)
		r.findStrangers(&p)
		p.setUnlisted(r.sampler.last, att.GPUs, r.libkerf.Managed(capsOf(grants)))
	}
	r.sampler.last, r.sampler.at, r.sampler.changes = p, time.Now(), now
	return p
}

// ask reads the driver, all GPUs at once, so that one that hangs delays nobody by more than its deadline. It returns the
// process lists.
func (r *Runtime) ask(ctx context.Context, att *Attachment, grants []ledger.Grant, p *picture) []lists.Answer {
	ctx, cancel := context.WithTimeout(ctx, sampleDeadline)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	answers := make([]lists.Answer, len(att.GPUs))
	for i, g := range att.GPUs {
		wg.Go(func() {
			answers[i] = r.lists.Ask(g.UUID, func() ([]lists.Use, error) {
				s, err := att.Driver.Sample(ctx, g.UUID)
				if err != nil {
					return nil, err
				}
				mu.Lock()
				defer mu.Unlock()
				p.gpus[g.UUID] = s
				return s.Processes, nil
			})
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
	return answers
}

// findStrangers looks for processes on the GPUs that no lease accounts for: also those of leases that have no fragment on
// the GPU that they use.
func (r *Runtime) findStrangers(p *picture) {
	for gpu, look := range p.looks {
		for _, line := range look.Lines {
			if line.Kind == listing.Running && line.Owner == "" && line.Cgroup != "" && !r.ofDaemons(line.Cgroup) {
				p.strangers[gpu] = append(p.strangers[gpu], line.PID)
			}
		}
		slices.Sort(p.strangers[gpu])
	}
}

// leasedOn reports whether the cgroup belongs to a lease with a fragment on that GPU.
func leasedOn(grants []ledger.Grant, gpu sharing.GPUID, dir string) bool {
	return slices.ContainsFunc(grants, func(g ledger.Grant) bool { return leaseHas(g, gpu, dir) })
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
// its processes. Known is false when either cannot be told in full.
func (p picture) used(id ledger.ClaimID, gpu sharing.GPUID) (sharing.Bytes, bool) {
	if used, ok := p.capped[capKey{id, gpu}]; ok {
		return used, true
	}
	return p.byProcess(id, gpu)
}

// byProcess is the sum over the processes of a lease, those that have ended among them, whatever the driver's limit counts.
func (p picture) byProcess(id ledger.ClaimID, gpu sharing.GPUID) (sharing.Bytes, bool) {
	look, ok := p.looks[gpu]
	_, listed := p.pids[id]
	if !ok || !listed {
		return 0, false
	}
	c := look.Charge(listing.Owner(id))
	return c.Bytes, c.Known
}
