// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"os"
	"path"
	"slices"

	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend"
	"github.com/kerf-gpu/kerf/sharing/backend/reactive"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/listing"
	"github.com/kerf-gpu/kerf/sharing/lists"
	"github.com/kerf-gpu/kerf/sharing/node/observe"
)

// see reads what the watch judges: the driver's lists, and to whom their entries belong.
func (g *guard) see(ctx context.Context) reactive.Sample {
	g.r.mu.Lock()
	att, grants := g.r.att, g.r.ledger.Grants()
	owners := g.r.owners(grants)
	clear(g.unclear)
	s := reactive.Sample{Strangers: g.r.pool.Strangers == config.StrangersKill && g.r.sure()}
	for _, gr := range grants {
		caps := g.capsOf(gr)
		if h := g.r.held[gr.Claim.ID]; h != nil {
			h.watched = len(caps) > 0
		}
		s.Caps = append(s.Caps, caps...)
	}
	var silent []sharing.GPUID
	for _, v := range g.r.ledger.GPUs() {
		if v.GPU.Health == sharing.HealthLost || v.GPU.Health == sharing.HealthSuspect {
			silent = append(silent, v.GPU.UUID)
		}
	}
	g.r.mu.Unlock()
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
	for _, look := range g.r.lists.Judge(g.r.lists.AskAll(ctx, att.Driver, ask, watchDeadline), owners) {
		if look.Err == nil {
			s.GPUs = append(s.GPUs, g.sort(look, owners, s))
		}
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
	h := g.r.held[gr.Claim.ID]
	if gr.Lease == nil || h == nil || g.r.speaker(gr) != gr.Claim.ID {
		return nil
	}
	held := false // by something beside the watch
	p := backend.PropertiesOf(h.backend)
	if p.Watch == backend.WatchNever || p.Watch == backend.WatchListed && !g.r.watches(gr) {
		return nil
	}
	if p.Counts {
		held = g.r.libkerf.Check(g.r.grantOf(gr, h)) == backend.Fault{}
	}
	action, slack := reactive.Warn, sharing.Bytes(0)
	switch g.r.config.OverCapOf(g.r.pool, gr.Claim.Request.Profile) {
	case config.OverCapKill:
		action = reactive.Kill
	case config.OverCapEvict:
		if action = reactive.Kill; g.r.notify.CanEvict(gr) {
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
	return r.recovery.Complete() && len(r.conditions.Unserved()) == 0
}

// sort gives the entries of a GPU's list to the leases that they belong to, or takes those of unmanaged processes for
// strangers. Whose an entry is that is unattributed is told elsewhere, and nothing is done about it.
func (g *guard) sort(look lists.Look, owners []lists.Grant, s reactive.Sample) reactive.GPU {
	out := reactive.GPU{ID: look.GPU, Told: true}
	for _, line := range look.Lines {
		switch {
		case line.Owner != "":
			id := ledger.ClaimID(line.Owner)
			out.Uses = append(out.Uses, reactive.Use{
				Process: reactive.Process{PID: line.PID, Start: line.Process.Start}, Lease: g.speakerOf(id), Bytes: line.Bytes, Known: line.Known,
				Escaped: line.Kind == listing.Running && !line.MPS && g.r.served(id), Ended: line.Kind == listing.Ended, Inferred: line.Inferred,
			})
		case line.Kind == listing.Running && s.Strangers && line.Cgroup != "" && g.r.mayEnd(line.PID, line.Cgroup):
			out.Strangers = append(out.Strangers, reactive.Process(line.Process))
		}
	}
	for _, o := range owners {
		if why := unclearWhy(look, g.indexOf(look.GPU), o.Owner); why != "" && o.On(look.GPU) {
			lease := g.speakerOf(ledger.ClaimID(o.Owner))
			out.Unclear = append(out.Unclear, lease)
			g.unclear[lease] = why
		}
	}
	out.Keepers = g.keepers(look, owners, out.Uses, s.Caps)
	return out
}

// keepers finds who keeps what processes held that have ended, for leases that are over their cap: the files of processes are
// not read without need. A lease whose processes cannot be read has none.
func (g *guard) keepers(look lists.Look, owners []lists.Grant, uses []reactive.Use, caps []reactive.Cap) (out []reactive.Keeper) {
	for _, c := range caps {
		var held, ended sharing.Bytes
		for _, u := range uses {
			if u.Lease != c.Lease {
				continue
			}
			if held += u.Bytes; u.Ended { // of one GPU, so that the sum does not wrap
				ended += u.Bytes
			}
		}
		if c.GPU != look.GPU || held <= c.Memory || ended == 0 {
			continue
		}
		for _, o := range owners {
			if g.speakerOf(ledger.ClaimID(o.Owner)) != c.Lease {
				continue
			}
			all, _ := g.r.lists.Keepers(look, o) // status tells why they cannot be read
			for _, p := range all {
				out = append(out, reactive.Keeper{Process: reactive.Process(p), Lease: c.Lease})
			}
		}
	}
	return out
}

// indexOf is a GPU's index, for people.
func (g *guard) indexOf(gpu sharing.GPUID) int {
	g.r.mu.Lock()
	defer g.r.mu.Unlock()
	return g.r.gpu(gpu).Index
}

// speakerOf is the lease that stands for the grant.
func (g *guard) speakerOf(id ledger.ClaimID) reactive.LeaseID {
	g.r.mu.Lock()
	defer g.r.mu.Unlock()
	if gr, ok := g.r.ledger.Get(id); ok {
		id = g.r.speaker(gr)
	}
	return reactive.LeaseID(id)
}

// leaseHas reports whether the cgroup belongs to the grant's lease and the grant has a fragment on the GPU.
func leaseHas(gr ledger.Grant, gpu sharing.GPUID, dir string) bool {
	return observe.Touches(gr.Claim.Placement, gpu) && gr.Lease != nil && cgroup.Beneath(dir, gr.Lease.Cgroup)
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
		if h.hasGroup && (g.Lease == nil || h.busy) && cgroup.Beneath(dir, h.group.Dir) {
			return true
		}
	}
	return false
}

// ofAnotherAgent reports whether the cgroup is among the grants of another agent of this machine.
func (r *Runtime) ofAnotherAgent(dir string) bool {
	all := path.Dir(r.opt.Parent)
	return all != "." && cgroup.Beneath(dir, path.Join(r.opt.Cgroups.Mount, all)) && !cgroup.Beneath(dir, path.Join(r.opt.Cgroups.Mount, r.opt.Parent))
}

// driverPrograms are the driver's own that a GPU's lists may show. A tenant's program of such a name is reported
// like any stranger, and not killed.
func driverPrograms() []string {
	return []string{
		"nvidia-persistenced", "nvidia-powerd", "nvidia-imex", "nvidia-smi", "nvidia-modprobe", "nv-fabricmanager", "nv-hostengine",
		"nvidia-cuda-mps-control", "nvidia-cuda-mps-server",
	}
}
