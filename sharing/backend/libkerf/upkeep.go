// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libkerf

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf/contextsize"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf/overhead"
	"github.com/kerf-gpu/kerf/sharing/lists"
)

// Attachment is a grant whose programs run, or all such grants that share a cap.
type Attachment struct {
	// ID is that of the first of the grants.
	ID string
	// Groups are the cgroups, and Owners the grants as the driver's lists are judged.
	Groups []cgroup.Group
	Owners []lists.Grant
	// GPUs are those of the grant, and Caps its caps.
	GPUs []sharing.GPURef
	Caps sharing.Placement
	// Priority is the highest class of the grants.
	Priority int
}

// Finding is what Upkeep found out about an attachment.
type Finding struct {
	ID string
	// Uncounted says which of its processes do not count, if any. New of them were not found before.
	Uncounted string
	New       int
	// Rejected is true if its programs ask for functions that libkerf does not know, and so rejects.
	Rejected bool
	// Used is what it uses of each GPU that the driver reported.
	Used map[sharing.GPURef]sharing.Bytes
}

// kept is an attachment in one upkeep.
type kept struct {
	Attachment
	region *region
	rules  Rules
	// pids are the processes of the attachment, sorted, and graves the slots of those that have ended.
	pids      []int
	graves    []libkerf.Grave
	sample    overhead.Sample
	uncounted []overhead.Process
	// rejected is how many unknown functions libkerf has replaced.
	rejected uint64
}

// Upkeep gives back what dead processes held and no other process keeps. It corrects the overhead of each attachment by
// what ask says that the driver lists on GPUs, and finds the processes that do not count. It reports whether a region
// turned out not to be whole.
func (b *Backend) Upkeep(ctx context.Context, attachments []Attachment,
	ask func([]sharing.GPURef) []lists.Observation) (found []Finding,
	lost bool) {
	b.Clean(ctx)
	var all []*kept
	var gpus []sharing.GPURef
	var rules Rules
	if len(attachments) > 0 {
		rules = b.opt.Rules()
	}
	for _, l := range attachments {
		k := &kept{Attachment: l, rules: rules}
		if k.region = b.wholeOf(l.ID); k.region == nil {
			continue
		}
		if !b.keep(k, k.before, &lost) {
			continue
		}
		all, gpus = append(all, k), append(gpus, k.GPUs...)
	}
	if len(all) == 0 {
		return nil, lost
	}
	slices.SortFunc(gpus, sharing.GPURef.Compare)
	looks := ask(slices.Compact(gpus))
	if ctx.Err() != nil {
		return nil, lost
	}
	for _, k := range all {
		b.keep(k, func(open *libkerf.UsageFile) error { return k.after(b.opt.Lists, looks, open) }, &lost)
		found = append(found, k.finding(b))
	}
	return found, lost
}

// wholeOf is the region of a grant, nil if it has no whole one.
func (b *Backend) wholeOf(id string) *region {
	b.mu.Lock()
	defer b.mu.Unlock()
	if g := b.of(id); g != nil && g.lost == "" {
		return g
	}
	return nil
}

// keep does one part of the upkeep of a region. It returns false if that failed, and sets lost if the region is not
// whole.
func (b *Backend) keep(k *kept, do func(*libkerf.UsageFile) error, lost *bool) bool {
	err := k.region.use(do)
	if errors.Is(err, sharing.ErrStale) {
		b.mu.Lock()
		k.region.lost = err.Error()
		b.mu.Unlock()
		b.opt.Log.Error("usage file of a grant was damaged", "grant", k.ID, "error", err.Error())
		*lost = true
		return false
	}
	if err != nil {
		b.opt.Log.Warn("failed to update usage file", "grant", k.ID, "error", err.Error())
	}
	return err == nil
}

// finding notes which processes of an attachment do not count, and logs each once.
func (k *kept) finding(b *Backend) Finding {
	b.mu.Lock()
	was := k.region.uncounted
	k.region.uncounted = k.uncounted
	b.mu.Unlock()
	f := Finding{ID: k.ID, Uncounted: uncountedReason(k.uncounted), Rejected: k.rejected > 0, Used: k.sample.Used()}
	for _, p := range k.uncounted {
		if !slices.Contains(was, p) {
			f.New++
			b.opt.Log.Warn("found process without libkerf on a GPU", "grant", k.ID, "pid", p.PID)
		}
	}
	return f
}

// before finds out who lives and whose slots are of processes that have ended, and reads the counters.
func (k *kept) before(open *libkerf.UsageFile) (err error) {
	if err := open.Check(k.region.dir); err != nil {
		return err
	}
	open.RejectManaged(k.rules.RejectManaged)
	k.graves, err = open.Dead(func(slots []libkerf.Process) (_ map[libkerf.Process]bool, err error) {
		if k.pids, err = cgroup.ProcsOf(k.Groups); err != nil {
			return nil, fmt.Errorf("processes of the attachment: %w", err) // never free a share on doubt
		}
		return k.region.members.Scan(k.pids, slots)
	})
	k.sample.Before, k.rejected = k.counts(open), open.Rejected()
	return err
}

// counts are the counters of the attachment's processes.
func (k *kept) counts(open *libkerf.UsageFile) map[overhead.Process]overhead.Count {
	out := map[overhead.Process]overhead.Count{}
	for _, c := range open.Counts() {
		if p, ok := k.region.members.Of(c.Process); ok {
			// it is at no counter any more
			ended := slices.ContainsFunc(k.graves, func(g libkerf.Grave) bool { return g.Process == c.Process })
			out[p] = overhead.Count{Steps: c.Steps, Quiet: c.Quiet || ended, Used: c.Used, Managed: c.Managed,
				Waiting: c.Waiting}
		}
	}
	return out
}

// after reads the counters again, now that the driver has returned its lists, and corrects the overhead. Memory of
// ended processes becomes overhead, as the driver reports it, before their slots are freed.
func (k *kept) after(l *lists.Lists, looks []lists.Observation, open *libkerf.UsageFile) error {
	for _, look := range looks {
		if slices.Contains(k.GPUs, look.GPU) && k.tells(look) {
			k.sample.Listed = append(k.sample.Listed, look.GPU)
		}
	}
	free := slices.DeleteFunc(slices.Clone(k.graves), k.stays(l, looks, open))
	for _, g := range free {
		p, _ := k.region.members.Of(g.Process)
		delete(k.sample.Before, p)
		k.region.members.Forget(g.Process)
	}
	k.sample.Ended = map[sharing.GPURef]sharing.Bytes{}
	for _, look := range looks {
		if slices.Contains(k.sample.Listed, look.GPU) {
			k.take(look)
		}
	}
	k.sample.After, k.sample.Bound = k.counts(open), bounds(k.rules.Contexts)
	res := k.region.account.Step(k.sample)
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

// correct puts the overhead of each GPU right, and what a context is taken to need. The least that one took comes
// first: who waits for room needs it when it finds some.
func (k *kept) correct(open *libkerf.UsageFile, res overhead.Result) error {
	names := k.region.members.Slots()
	for _, gpu := range k.GPUs {
		if err := k.noteContext(open, gpu, res.Least[gpu]); err != nil {
			return err
		}
		overhead, believed := res.Overhead[gpu]
		if !believed && !slices.Contains(k.sample.Listed, gpu) {
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

// noteContext sets the assumed size of a context on the GPU, and records the least that one of the attachment took; 0:
// none was seen.
func (k *kept) noteContext(open *libkerf.UsageFile, gpu sharing.GPURef, least sharing.Bytes) error {
	if least > 0 {
		if err := open.SawContext(gpu, least); err != nil {
			return err
		}
	}
	if size, known := k.rules.Contexts[gpu]; known {
		return setContext(open, gpu, size)
	}
	return nil
}

// uncountedReason says which processes nothing refuses memory; "" if there are none.
func uncountedReason(processes []overhead.Process) string {
	if len(processes) == 0 {
		return ""
	}
	var pids []string
	for _, p := range processes {
		pids = append(pids, strconv.Itoa(p.PID))
	}
	return "its GPU is used without the preloaded library, as static programs do, so that nothing " +
		"refuses memory: pid " + strings.Join(pids, ", ")
}

// bounds are the sizes that are upper bounds.
func bounds(sizes map[sharing.GPURef]contextsize.Size) map[sharing.GPURef]sharing.Bytes {
	out := map[sharing.GPURef]sharing.Bytes{}
	for gpu, size := range sizes {
		if !size.Measured {
			out[gpu] = size.Bytes
		}
	}
	return out
}
