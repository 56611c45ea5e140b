// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/choice"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf/contextsize"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf/overhead"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/listing"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
	"github.com/kerf-gpu/kerf/sharing/node/lists"
)

// upkeepEvery is how often the counters of programs that count themselves are put right: what a killed process held
// is back within a second.
const upkeepEvery = 250 * time.Millisecond

// upkeepLoop looks after the regions until ctx ends.
func (r *Runtime) upkeepLoop(ctx context.Context) error {
	t := time.NewTicker(upkeepEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		r.upkeep(ctx)
	}
}

// kept is a lease whose processes count, or all those that share a cap, as one upkeep sees them.
type kept struct {
	id     ledger.ClaimID
	region *region
	groups []cgroup.Group
	gpus   []sharing.GPUID
	// managed is the pool's rule for managed memory, which a new config may change at any time.
	managed config.ManagedMemory
	// owners are the grants of the lease, as the driver's lists are judged.
	owners []lists.Grant
	// pids are the processes of the lease, sorted, and graves the slots of those that have ended.
	pids      []int
	graves    []libkerf.Grave
	look      overhead.Look
	uncounted []overhead.Process
	// rejected is how many unknown functions libkerf has replaced.
	rejected uint64
	// contexts are what one context is taken to need on each GPU.
	contexts map[sharing.GPUID]contextsize.Size
}

// upkeep gives back what dead processes held and nobody keeps, corrects the overhead of each lease by what the driver tells, and
// finds the processes that do not count.
func (r *Runtime) upkeep(ctx context.Context) {
	r.removeSpent()
	r.mu.Lock()
	att := r.att
	var all []*kept
	of := map[*region]*kept{}
	grants := r.ledger.Grants()
	owners := r.owners(grants)
	for _, g := range grants {
		h := r.held[g.Claim.ID]
		if g.Lease == nil || h == nil || h.region == nil || h.region.lost != "" {
			continue
		}
		mine := slices.IndexFunc(owners, func(o lists.Grant) bool { return o.Owner == listing.Owner(g.Claim.ID) })
		if k := of[h.region]; k != nil {
			k.groups, k.owners = append(k.groups, h.group), append(k.owners, owners[mine])
			continue
		}
		k := &kept{id: g.Claim.ID, region: h.region, groups: []cgroup.Group{h.group}, owners: owners[mine : mine+1 : mine+1], managed: r.pool.ManagedMemory, contexts: r.contextSizes()}
		of[h.region] = k
		for _, f := range g.Claim.Placement {
			k.gpus = append(k.gpus, f.GPU)
		}
		all = append(all, k)
	}
	r.mu.Unlock()
	all = slices.DeleteFunc(all, func(k *kept) bool { return !r.keep(k, k.before) })
	if len(all) == 0 {
		return
	}
	var ask []sharing.GPUID
	for _, k := range all {
		ask = append(ask, k.gpus...)
	}
	slices.Sort(ask)
	answers := r.lists.AskAll(ctx, driverOf(att), slices.Compact(ask), watchDeadline)
	if ctx.Err() != nil {
		return
	}
	looks := r.lists.Judge(answers, owners)
	for _, k := range all {
		r.keep(k, func(open *libkerf.Region) error { return k.after(r.lists, looks, open) })
		r.tellUncounted(k)
	}
}

// noDriver is a driver that does not answer.
type noDriver struct{}

func (noDriver) Processes(context.Context, sharing.GPUID) ([]ProcessUse, error) {
	return nil, fmt.Errorf("no driver answers: %w", sharing.ErrUnavailable)
}

func driverOf(att *Attachment) lists.Driver {
	if att == nil {
		return noDriver{}
	}
	return att.Driver
}

// keep does one part of the upkeep of a region. It returns false where the region turns out to be spoilt.
func (r *Runtime) keep(k *kept, do func(*libkerf.Region) error) bool {
	err := k.region.use(do)
	if errors.Is(err, sharing.ErrStale) {
		r.mu.Lock()
		k.region.lost = err.Error()
		r.mu.Unlock()
		r.log.Error("region of a grant is not whole any more", "claim", k.id, "error", err.Error())
		r.changed.announce()
		return false
	}
	if err != nil {
		r.log.Warn("counters of a grant not looked after", "claim", k.id, "error", err.Error())
	}
	return err == nil
}

// before finds out who lives and whose slots are of processes that have ended, and reads the counters.
func (k *kept) before(open *libkerf.Region) (err error) {
	if err := open.Check(k.region.dir); err != nil {
		return err
	}
	open.RejectManaged(k.managed == config.ManagedReject)
	k.graves, err = open.Dead(func(slots []libkerf.Process) (_ map[libkerf.Process]bool, err error) {
		if k.pids, err = procsOf(k.groups); err != nil {
			return nil, fmt.Errorf("processes of the lease: %w", err) // never free a share on doubt
		}
		return k.region.members.Look(k.pids, slots)
	})
	k.look.Before, k.rejected = k.counts(open), open.Rejected()
	return err
}

// procsOf are the processes in cgroups, sorted. A cgroup that is gone has none.
func procsOf(groups []cgroup.Group) (all []int, err error) {
	for _, g := range groups {
		pids, err := g.Procs()
		if err != nil && !errors.Is(err, sharing.ErrNotFound) && !errors.Is(err, sharing.ErrStale) {
			return nil, err
		}
		all = append(all, pids...)
	}
	slices.Sort(all)
	return all, nil
}

// counts are the counters of the lease's processes.
func (k *kept) counts(open *libkerf.Region) map[overhead.Process]overhead.Count {
	out := map[overhead.Process]overhead.Count{}
	for _, c := range open.Counts() {
		if p, ok := k.region.members.Of(c.Process); ok {
			ended := slices.ContainsFunc(k.graves, func(g libkerf.Grave) bool { return g.Process == c.Process }) // it is at no counter any more
			out[p] = overhead.Count{Steps: c.Steps, Quiet: c.Quiet || ended, Held: c.Held, Managed: c.Managed, Waiting: c.Waiting}
		}
	}
	return out
}

// after reads the counters again, now that the driver has told its lists, and puts the overhead right. What processes hold
// that have ended becomes overhead, as the driver tells it, before their slots are freed.
func (k *kept) after(l *lists.Lists, looks []lists.Look, open *libkerf.Region) error {
	for _, look := range looks {
		if slices.Contains(k.gpus, look.GPU) && k.tells(look) {
			k.look.Told = append(k.look.Told, look.GPU)
		}
	}
	free := slices.DeleteFunc(slices.Clone(k.graves), k.stays(l, looks, open))
	for _, g := range free {
		p, _ := k.region.members.Of(g.Process)
		delete(k.look.Before, p)
		k.region.members.Forget(g.Process)
	}
	k.look.Ended = map[sharing.GPUID]sharing.Bytes{}
	for _, look := range looks {
		if slices.Contains(k.look.Told, look.GPU) {
			k.take(look)
		}
	}
	k.look.After, k.look.Bound = k.counts(open), bounds(k.contexts)
	res := k.region.account.Step(k.look)
	k.uncounted = res.Uncounted
	give := func() error { // the overhead first: for a moment bytes count twice, and never not at all
		if err := k.correct(open, res); err != nil {
			return err
		}
		_, err := open.Bury(free)
		return err
	}
	if len(free) == 0 {
		return give()
	}
	return open.Moving(give)
}

// correct puts the overhead of each GPU right, and what a context is taken to need. The least that one took comes first: who
// waits for room needs it when it finds some.
func (k *kept) correct(open *libkerf.Region, res overhead.Result) error {
	names := k.region.members.Slots()
	for _, gpu := range k.gpus {
		if err := k.noteContext(open, gpu, res.Least[gpu]); err != nil {
			return err
		}
		overhead, believed := res.Overhead[gpu]
		if !believed && !slices.Contains(k.look.Told, gpu) {
			continue // it is as the agent before left it
		}
		var seen []libkerf.Reserved
		for _, s := range res.Settled {
			if s.GPU == gpu {
				seen = append(seen, libkerf.Reserved{Process: names[s.Process], Bytes: s.Bytes})
			}
		}
		if err := open.Correct(gpu, overhead, seen); err != nil {
			return err
		}
	}
	return nil
}

// noteContext sets what a context on the GPU is taken to need, and notes the least that one of the lease took; 0: none was seen.
func (k *kept) noteContext(open *libkerf.Region, gpu sharing.GPUID, least sharing.Bytes) error {
	if least > 0 {
		if err := open.SawContext(gpu, least); err != nil {
			return err
		}
	}
	if size, known := k.contexts[gpu]; known {
		return setContext(open, gpu, size)
	}
	return nil
}

// tellUncounted shows which processes of a lease do not count, and logs each once.
func (r *Runtime) tellUncounted(k *kept) {
	r.mu.Lock()
	was := k.region.uncounted
	k.region.uncounted = k.uncounted
	sentence := ""
	if len(k.uncounted) > 0 {
		sentence = fmt.Sprintf("grant %s: %s", k.id, uncountedReason(k.uncounted))
	}
	r.conditions.SetOf(conditions.Uncounted, string(k.id), sentence)
	changed := r.noteExcess(k)
	if r.conditions.SetOf(conditions.Rejected, string(k.id), k.rejectedWarning()) {
		r.log.Warn("programs ask for functions that libkerf does not know", "claim", k.id)
	}
	r.mu.Unlock()
	for _, p := range k.uncounted {
		if !slices.Contains(was, p) {
			r.log.Warn("process uses a GPU and does not count its memory", "claim", k.id, "pid", p.PID)
			r.opt.Observer.Uncounted()
		}
	}
	if changed {
		r.changed.announce()
	}
}

// rejectedWarning says that libkerf rejects calls because it does not know the functions; "" if it rejects none.
func (k *kept) rejectedWarning() string {
	if k.rejected == 0 {
		return ""
	}
	return fmt.Sprintf("grant %s: its programs ask for functions that allocate memory and that this version of Kerf does not know;"+
		" libkerf rejects their calls; update Kerf", k.id)
}

// uncountedReason says which processes nothing refuses memory; "" if there are none.
func uncountedReason(processes []overhead.Process) string {
	if len(processes) == 0 {
		return ""
	}
	var pids []int
	for _, p := range processes {
		pids = append(pids, p.PID)
	}
	return "its GPU is used without the preloaded library, as static programs do, so that nothing refuses memory: pid " + numbers(pids)
}

// clientLevel is what enforces the cap of a lease of libkerf or MPS now, and why that is less than it was given; ok is false
// if it is not less. It needs the lock.
func (r *Runtime) clientLevel(g ledger.Grant, h *holding) (level sharing.Level, why string, ok bool) {
	switch {
	case h == nil || g.Lease == nil:
		return 0, "", false
	case h.backend == config.BackendMPS: // which the reactive backend always watches
		return sharing.LevelReactive, h.excess, h.excess != "" && h.watchLost == ""
	case h.backend != config.BackendLibkerf:
		return 0, "", false
	case h.region == nil || h.region.lost != "":
		return sharing.LevelUnknown, "the counters of its programs are not whole, so that it cannot be told what holds it: " + h.region.why(), true
	}
	why = joinSentences([]string{h.region.excess, uncountedReason(h.region.uncounted)})
	if r.watches(g) {
		return sharing.LevelReactive, why, why != ""
	}
	return sharing.LevelNone, why, why != ""
}

// counts reports whether all that is known of the region is whole and every process of the lease counts in it; g may be nil.
func (g *region) counts() bool { return g != nil && g.lost == "" && len(g.uncounted) == 0 }

// watches reports whether the lists in force have a lease watched that something else holds: on all of its GPUs, as it is
// held in one way on all of them. It needs the lock.
func (r *Runtime) watches(g ledger.Grant) bool {
	return !slices.ContainsFunc(g.Claim.Placement, func(f sharing.Fragment) bool {
		return !slices.Contains(r.listOn(r.gpu(f.GPU), g.Claim.Request.Profile), config.BackendReactive) || r.blind(f.GPU)
	})
}

// blind reports whether the driver does not list the processes of a GPU to this agent. It needs the lock.
func (r *Runtime) blind(gpu sharing.GPUID) bool {
	if r.att == nil {
		return false
	}
	s, asked := r.att.Levels[gpu][config.BackendReactive]
	return asked && s.Answer == choice.NotSupported
}
