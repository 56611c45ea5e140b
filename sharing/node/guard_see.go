// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"os"
	"path"
	"slices"
	"sync"

	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/caps/reactive"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// see reads what the watch judges: first the driver's lists, then which cgroup each of their processes is in
// and when it started, so that a process which took over a pid in between does not match the sample before.
func (g *guard) see(ctx context.Context) reactive.Sample {
	g.mu.Lock()
	att, grants := g.att, g.ledger.Grants()
	s := reactive.Sample{Strangers: g.pool.Strangers == config.StrangersKill && g.sure()}
	for _, gr := range grants {
		caps := g.capsOf(gr)
		if h := g.held[gr.Claim.ID]; h != nil {
			h.watched = len(caps) > 0
		}
		s.Caps = append(s.Caps, caps...)
	}
	var silent []sharing.GPUID
	for _, v := range g.ledger.GPUs() {
		if v.GPU.Health == sharing.HealthLost || v.GPU.Health == sharing.HealthSuspect {
			silent = append(silent, v.GPU.UUID)
		}
	}
	g.mu.Unlock()
	if att == nil || len(s.Caps) == 0 && !s.Strangers {
		return reactive.Sample{} // without a driver every lease shows level unknown already
	}
	var ask []sharing.GPUID
	for _, gpu := range att.GPUs {
		watched := s.Strangers && !gpu.MIG || slices.ContainsFunc(s.Caps, func(c reactive.Cap) bool { return c.GPU == gpu.UUID })
		if watched && !slices.Contains(silent, gpu.UUID) {
			ask = append(ask, gpu.UUID)
		}
	}
	known := map[int]member{}
	for _, l := range askAll(ctx, att.Driver, ask) {
		if l.err != nil {
			continue // not told
		}
		s.GPUs = append(s.GPUs, g.sort(l, grants, s, known))
	}
	for _, c := range s.Caps {
		if !slices.ContainsFunc(s.GPUs, func(one reactive.GPU) bool { return one.ID == c.GPU }) {
			s.GPUs = append(s.GPUs, reactive.GPU{ID: c.GPU})
		}
	}
	return s
}

// contextSlack is more than the context of a process and its modules usually take, 0.3 to 0.6 GiB on GPUs of today.
const contextSlack = sharing.GiB

// capsOf are the caps of a lease that is watched: because nothing else holds it, or because MPS holds each of its
// processes alone, and not their sum. Of leases that share a cap one has it for all. It needs the lock.
func (g *guard) capsOf(gr ledger.Grant) []reactive.Cap {
	h := g.held[gr.Claim.ID]
	if gr.Lease == nil || h == nil || g.speaker(gr) != gr.Claim.ID {
		return nil
	}
	held := false // by something beside the watch
	switch h.backend {
	case config.BackendReactive, config.BackendMPS:
	case config.BackendLibkerf:
		if !g.watches(gr) {
			return nil
		}
		_, _, less := g.clientLevel(gr, h)
		held = !less
	default:
		return nil
	}
	action, slack := reactive.Warn, sharing.Bytes(0)
	switch g.config.OverCapOf(g.pool, gr.Claim.Request.Profile) {
	case config.OverCapKill:
		action = reactive.Kill
	case config.OverCapEvict:
		if action = reactive.Kill; gr.Claim.Owner.Pod() && g.evictPod != nil {
			action = reactive.Evict
		}
	case config.OverCapDefault, config.OverCapWarn:
	}
	// What counts its memory is over by what the driver holds for it beyond, before that was seen: nobody is killed
	// for a context.
	if held {
		slack = contextSlack
	}
	var out []reactive.Cap
	for _, f := range gr.Caps() {
		if !f.Whole {
			out = append(out, reactive.Cap{Lease: reactive.LeaseID(gr.Claim.ID), GPU: f.GPU, Memory: f.Memory, Action: action, Slack: slack})
		}
	}
	return out
}

// sure reports whether it is certain who has a lease: before all of it is found again after a restart, and
// while a container runs that cannot be accounted for, nobody counts as a stranger. Containers that only a
// damaged record knew are told by nobody but a container runtime. It needs the lock.
func (r *Runtime) sure() bool {
	told := r.witnessed || !r.awaitWitness && !r.damaged
	return told && len(r.notReady()) == 0 && len(r.orphans) == 0 && r.warnings["unaccounted"] == ""
}

// listing is what the driver said of one GPU.
type listing struct {
	gpu  sharing.GPUID
	uses []ProcessUse
	err  error
}

// askAll asks all GPUs at once: one that hangs delays the others by no more than the deadline.
func askAll(ctx context.Context, driver Driver, gpus []sharing.GPUID) []listing {
	ctx, cancel := context.WithTimeout(ctx, watchDeadline)
	defer cancel()
	out := make([]listing, len(gpus))
	var all sync.WaitGroup
	for i, id := range gpus {
		all.Go(func() {
			uses, err := driver.Processes(ctx, id)
			out[i] = listing{id, uses, err}
		})
	}
	all.Wait()
	return out
}

// member is what the kernel tells of one process.
type member struct {
	dir   string
	start uint64
	err   error
}

func (g *guard) member(pid int, known map[int]member) member {
	m, ok := known[pid]
	if !ok {
		if m.dir, m.err = g.opt.Cgroups.OfProcess(pid); m.err == nil {
			m.start, m.err = process.StartOf(pid)
		}
		known[pid] = m
	}
	return m
}

// sort gives each process of a GPU to the lease whose cgroup it is in, or takes it for a stranger.
func (g *guard) sort(l listing, grants []ledger.Grant, s reactive.Sample, known map[int]member) reactive.GPU {
	out := reactive.GPU{ID: l.gpu, Told: true}
	for _, use := range l.uses {
		m := g.member(use.PID, known)
		if errors.Is(m.err, sharing.ErrNotFound) || errors.Is(m.err, sharing.ErrStale) {
			continue // it has ended
		}
		p := reactive.Process{PID: use.PID, Start: m.start}
		if m.dir == "" {
			continue // in no cgroup that can be seen: nobody's, and nothing is done on doubt
		}
		if i := slices.IndexFunc(grants, func(gr ledger.Grant) bool { return leaseHas(gr, l.gpu, m.dir) }); i >= 0 {
			// When it started may not have been told: its use then counts as not known.
			out.Uses = append(out.Uses, reactive.Use{
				Process: p, Lease: reactive.LeaseID(g.speakerOf(grants[i])), Bytes: use.Used, Known: use.Known && m.err == nil,
				Escaped: !use.MPS && g.byMPS(grants[i].Claim.ID),
			})
			continue
		}
		if s.Strangers && m.err == nil && g.mayEnd(use.PID, m.dir) {
			out.Strangers = append(out.Strangers, p)
		}
	}
	return out
}

// speakerOf is speaker, with the lock taken.
func (g *guard) speakerOf(gr ledger.Grant) ledger.ClaimID {
	if gr.Joint == nil {
		return gr.Claim.ID
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.speaker(gr)
}

// byMPS reports whether MPS holds the grant.
func (g *guard) byMPS(id ledger.ClaimID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	h := g.held[id]
	return h != nil && h.backend == config.BackendMPS
}

// leaseHas reports whether the cgroup belongs to the grant's lease and the grant has a fragment on the GPU.
func leaseHas(gr ledger.Grant, gpu sharing.GPUID, dir string) bool {
	return touches(gr.Claim.Placement, gpu) && gr.Lease != nil && beneath(dir, gr.Lease.Cgroup)
}

// mayEnd reports whether a process without a lease on a GPU may be killed for it: not this agent, nothing
// that is about to have a lease, nothing of another agent, and no program of the driver.
func (r *Runtime) mayEnd(pid int, dir string) bool {
	if pid == os.Getpid() || r.ofAnotherAgent(dir) || r.arming(dir) {
		return false
	}
	program, err := process.Program(pid)
	return err == nil && !slices.Contains(driverPrograms(), path.Base(program))
}

// arming reports whether the cgroup is one that a claim has and no lease yet, or that is being ended.
func (r *Runtime) arming(dir string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, h := range r.held {
		g, _ := r.ledger.Get(id)
		if h.hasGroup && (g.Lease == nil || h.busy) && beneath(dir, h.group.Dir) {
			return true
		}
	}
	return false
}

// ofAnotherAgent reports whether the cgroup is among the grants of another agent of this machine.
func (r *Runtime) ofAnotherAgent(dir string) bool {
	all := path.Dir(r.opt.Parent)
	return all != "." && beneath(dir, path.Join(r.opt.Cgroups.Mount, all)) && !beneath(dir, path.Join(r.opt.Cgroups.Mount, r.opt.Parent))
}

// driverPrograms are the driver's own that a GPU's lists may show. A tenant's program of such a name is reported
// like any stranger, and not killed.
func driverPrograms() []string {
	return []string{
		"nvidia-persistenced", "nvidia-powerd", "nvidia-imex", "nvidia-smi", "nvidia-modprobe", "nv-fabricmanager", "nv-hostengine",
		"nvidia-cuda-mps-control", "nvidia-cuda-mps-server",
	}
}
