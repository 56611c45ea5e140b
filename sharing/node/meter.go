// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/audit"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
	"github.com/kerf-gpu/kerf/sharing/node/guard"
	"github.com/kerf-gpu/kerf/sharing/node/notify"
	"github.com/kerf-gpu/kerf/sharing/node/observe"
	"github.com/kerf-gpu/kerf/sharing/usage"
)

const (
	// meterEvery is how often it is looked at what grants use, and usageEvery how often it is written down.
	meterEvery = 10 * time.Second
	usageEvery = 15 * time.Minute
	// idleReason is the reason of evictions for being idle, for the observer.
	idleReason = "idle"
	// mostIdleEvictions is how many evictions run at once. A later look asks for the others.
	mostIdleEvictions = 4
)

const (
	// IdleReason of a pod: it leaves all its GPUs idle for longer than its pool allows.
	IdleReason = "GPUIdle"
)

// meter adds up what grants use, writes it to the audit log, and looks after those who are idle. Its loop alone uses it.
type meter struct {
	r      *Runtime
	sums   usage.Meter
	idler  usage.Idler
	start  time.Time
	claims map[string]ledger.Claim
	// labels are those of the claims' pods, as they were told last.
	labels    map[string]map[string]string
	unmanaged *guard.Reporter
	unlisteds observe.Unattributed
	ends      errgroup.Group
}

func newMeter(r *Runtime) *meter {
	m := &meter{r: r, start: time.Now(), claims: map[string]ledger.Claim{}, labels: map[string]map[string]string{}, unmanaged: &guard.Reporter{Options: r.guardOptions()}}
	m.ends.SetLimit(mostIdleEvictions)
	return m
}

// meterLoop looks until ctx ends, and then writes what has not been written yet.
func (r *Runtime) meterLoop(ctx context.Context) error {
	m := newMeter(r)
	defer func() { _ = m.ends.Wait() }() // what goes wrong was told
	look, write := time.NewTicker(meterEvery), time.NewTicker(usageEvery)
	defer look.Stop()
	defer write.Stop()
	for {
		select {
		case <-ctx.Done():
			m.write(m.sums.Take())
			return nil
		case <-write.C:
			m.write(m.sums.Take())
		case <-look.C:
			m.tick(ctx)
		}
	}
}

// tick looks once.
func (m *meter) tick(ctx context.Context) {
	p := m.r.sampler.Sample(ctx)
	now := time.Since(m.start)
	m.r.mu.Lock()
	att, grants := m.r.att, m.r.ledger.Grants()
	gpus := map[sharing.GPUID]sharing.GPU{}
	for _, v := range m.r.ledger.GPUs() {
		gpus[v.GPU.UUID] = v.GPU
	}
	pool := m.r.pool
	m.r.mu.Unlock()
	busy, watts := m.ask(ctx, att, gpus, p)
	if ctx.Err() != nil {
		return // what was seen while the agent stops is not the driver's word
	}
	m.unmanaged.See(ctx, p)
	m.tellUnattributed(ctx, p, gpus, grants)
	var looks []usage.Look
	for _, g := range grants {
		id := string(g.Claim.ID)
		m.claims[id] = g.Claim
		if labels := m.r.notify.Labels(g); labels != nil { // else it is going, and had those before
			m.labels[id] = fewLabels(labels)
		}
		for _, f := range g.Claim.Placement {
			l := usage.Look{
				Grant: id, GPU: f.GPU, Model: gpus[f.GPU].Model, Share: shareOf(f, gpus[f.GPU]), Granted: f.Memory,
				Leased: g.Lease != nil, Busy: -1, Watts: watts[f.GPU],
			}
			if f.Whole {
				l.Granted = gpus[f.GPU].Usable()
			}
			if by, known := busy[f.GPU]; known && f.MIG.None() {
				l.Busy = min(by[g.Claim.ID], 100)
			}
			l.Used, l.UsedKnown = p.Used(g.Claim.ID, f.GPU)
			looks = append(looks, l)
		}
	}
	m.write(m.sums.Step(now, looks))
	maps.DeleteFunc(m.claims, func(id string, _ ledger.Claim) bool { return !containsGrant(grants, id) })
	maps.DeleteFunc(m.labels, func(id string, _ map[string]string) bool { return !containsGrant(grants, id) })
	m.judgeIdle(ctx, now, pool.Idle, grants)
}

// UnlistedReason of the node: a GPU has unattributed memory, which is in use and belongs to no process that the driver lists.
const UnlistedReason = "GPUMemoryUnlisted"

// tellUnattributed tells those who run the node of each GPU once, until it is otherwise.
func (m *meter) tellUnattributed(ctx context.Context, p observe.Sample, gpus map[sharing.GPUID]sharing.GPU, grants []ledger.Grant) {
	news := m.unlisteds.News(p)
	for _, gpu := range sortedGPUs(gpus) {
		if bytes, is := news[gpu.UUID]; is {
			m.r.log.Warn("memory of a gpu is in use that no process has", "gpu", string(gpu.UUID), "bytes", uint64(bytes))
			m.r.notify.Node(ctx, UnlistedReason, p.Unattributed(gpu, grants))
		}
	}
}

func containsGrant(grants []ledger.Grant, id string) bool {
	for _, g := range grants {
		if string(g.Claim.ID) == id {
			return true
		}
	}
	return false
}

// shareOf is the part of a GPU that a fragment is.
func shareOf(f sharing.Fragment, g sharing.GPU) float64 {
	switch {
	case f.Whole:
		return 1
	case f.Percent > 0:
		return float64(f.Percent) / float64(sharing.FullGPU)
	case g.Usable() > 0:
		return min(float64(f.Memory)/float64(g.Usable()), 1)
	}
	return 0
}

// ask asks each GPU with a lease for the time that each used since the last look, and for its power. What is not told is
// not in the maps, or -1.
func (m *meter) ask(ctx context.Context, att *Attachment, gpus map[sharing.GPUID]sharing.GPU, p observe.Sample) (busy map[sharing.GPUID]map[ledger.ClaimID]int, watts map[sharing.GPUID]float64) {
	busy, watts = map[sharing.GPUID]map[ledger.ClaimID]int{}, map[sharing.GPUID]float64{}
	if att == nil {
		return busy, watts
	}
	owners := map[int]ledger.ClaimID{}
	for id, pids := range p.PIDs {
		for _, pid := range pids {
			owners[pid] = id
		}
	}
	for gpu := range gpus {
		one, cancel := context.WithTimeout(ctx, watchDeadline)
		told, err := att.Driver.ProcessTime(one, gpu, time.Now().Add(-meterEvery))
		s, seen := p.GPUs[gpu]
		idle := seen && s.Utilization == 0 // else no row says nothing
		if by := busyBy(told, owners); err == nil && (told.Told() || idle) {
			busy[gpu] = by
		}
		if w, err := att.Driver.Power(one, gpu); err == nil {
			watts[gpu] = w
		}
		cancel()
	}
	return busy, watts
}

// busyBy is what each grant used of a GPU, -1 where a row of its was not fit to be used.
func busyBy(told sharing.TimeUse, owners map[int]ledger.ClaimID) map[ledger.ClaimID]int {
	by := map[ledger.ClaimID]int{}
	for pid, row := range told.Rows {
		if id, ours := owners[pid]; ours {
			by[id] += row.SM
		}
	}
	for _, pid := range told.Doubt {
		if id, ours := owners[pid]; ours {
			by[id] = -1
		}
	}
	return by
}

// write writes records to the audit log.
func (m *meter) write(of map[string][]usage.Record) {
	for id, records := range of {
		if c, known := m.claims[id]; known && m.r.opt.Audit != nil {
			e := notify.Entry(audit.Usage, c)
			e.Fragments, e.Usage, e.Who.Labels = nil, records, m.labels[id]
			m.r.notify.Audit.Note(e)
		}
	}
}

// mostLabels is how many labels of a pod are written.
const mostLabels = 16

// fewLabels leaves out labels that controllers give each of their pods, and what is more than are written.
func fewLabels(all map[string]string) map[string]string {
	out := map[string]string{}
	for _, k := range slices.Sorted(maps.Keys(all)) {
		if strings.HasSuffix(k, "-hash") || strings.HasSuffix(k, "controller-uid") || len(out) == mostLabels {
			continue
		}
		out[k] = all[k]
	}
	return out
}

// judgeIdle looks after those who are idle.
func (m *meter) judgeIdle(ctx context.Context, now time.Duration, p config.Idle, grants []ledger.Grant) {
	var sitters []usage.Sitter
	byID := map[string]ledger.Grant{}
	for _, g := range grants {
		id, o := string(g.Claim.ID), g.Claim.Owner
		byID[id] = g
		sitters = append(sitters, usage.Sitter{Grant: id, Group: o.PodUID, Namespace: o.Namespace, Idle: m.sums.Idle(id, now)})
	}
	policy := usage.IdlePolicy{After: p.After, Evict: p.Do == config.IdleEvict, Except: p.Except}
	acts, idle := m.idler.Step(now, policy, sitters)
	for _, a := range acts {
		g := byID[a.Grant]
		text := fmt.Sprintf("its processes have used no GPU time for %s (idle.after: %s, do: %s)", a.Idle.Round(time.Second), p.After, p.Do)
		if a.First {
			m.r.log.Info("grant is idle", "claim", a.Grant, "pod", g.Claim.Owner.Namespace+"/"+g.Claim.Owner.PodName, "for", a.Idle.String())
			m.r.notify.Audit.Claim(audit.Idle, g.Claim, 0, text, nil)
			if p.Do != config.IdleReport {
				m.r.notify.Pod(ctx, g, IdleReason, text)
			}
		}
		if a.Evict && m.r.notify.CanEvict(g) {
			m.ends.TryGo(func() error { m.evictIdle(ctx, g, text); return nil })
		}
	}
	m.showIdle(idle, p)
}

func (m *meter) evictIdle(ctx context.Context, g ledger.Grant, text string) {
	ref := notify.Ref(g)
	err := m.r.notify.Evict(ctx, g, idleReason)
	m.r.notify.Audit.Claim(audit.Idle, g.Claim, 0, "its pod is evicted: "+text, err)
	if err != nil {
		m.r.log.Error("idle pod not evicted", "pod", ref.Namespace+"/"+ref.Pod, "error", err.Error())
		return
	}
	m.r.log.Warn("pod evicted", "reason", idleReason, "pod", ref.Namespace+"/"+ref.Pod, "claim", string(g.Claim.ID))
}

// showIdle keeps one warning for each who is idle.
func (m *meter) showIdle(idle []string, p config.Idle) {
	now := map[string]string{}
	for _, id := range idle {
		now[id] = fmt.Sprintf("grant %s has used no GPU time for %s or longer", id, p.After)
	}
	m.r.conditions.Replace(conditions.Idle, now)
}

func sortedGPUs(all map[sharing.GPUID]sharing.GPU) []sharing.GPU {
	out := make([]sharing.GPU, 0, len(all))
	for _, g := range all {
		out = append(out, g)
	}
	slices.SortFunc(out, func(a, b sharing.GPU) int { return a.Index - b.Index })
	return out
}
