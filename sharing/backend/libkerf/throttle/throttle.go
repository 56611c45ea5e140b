// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package throttle refills the budgets of GPU time that programs are charged from, at a steady pace: what each gets is
// decided by package compute.
//
// It promises that a budget which cannot be read or refilled costs the others nothing. A GPU whose driver does not
// report its users is refilled all the same, by what was charged alone. A driver's report is compared with the charges
// over the same time: from the time stamp of its last sample on.
//
// Not promised: a pace that never stumbles. What a loaded machine makes it sleep through counts for at most
// compute.MaxStep.
package throttle

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf/compute"
)

const (
	// Every is the mean time between two refills.
	Every = 20 * time.Millisecond
	// UsedEvery is how often the driver is asked who used the GPUs.
	UsedEvery = time.Second
	// usedDeadline bounds one such question.
	usedDeadline = 500 * time.Millisecond
	// maxCharged bounds what a step charges: a program can write to its own count.
	maxCharged = time.Minute
)

// Account is the budget of one grant on one GPU. Errors leave it as it is.
type Account interface {
	// Read returns what the budget holds, and what was ever counted.
	Read() (Counts, error)
	// AddTokens adds to the budget. A refill of zero still shows that the agent runs. Turn lasts until the next refill.
	AddTokens(add time.Duration, turn compute.LaunchState) error
	// Settle records how much ran since the last call: what was charged, corrected as far as its worth is known. The
	// driver's samples of the last seconds are used, if they are known.
	Settle(ran time.Duration, used compute.Share, known bool) error
}

// Counts are what an account holds now, and what was ever counted: the fields are those of compute.Seen.
type Counts struct {
	Balance, Charged, Occupied time.Duration
	Launches                   uint64
}

// since is what was counted after before.
func (n Counts) since(before Counts) compute.Seen {
	s := compute.Seen{
		Balance: n.Balance, Charged: max(0, min(n.Charged-before.Charged, maxCharged)),
		Occupied: max(0, min(n.Occupied-before.Occupied, maxCharged)),
	}
	if n.Launches > before.Launches {
		s.Launches = n.Launches - before.Launches
	}
	return s
}

// Attachment is an account to be refilled.
type Attachment struct {
	GPU     sharing.GPURef
	Grant   compute.Grant // its ID is unique on the GPU
	Account Account
}

// Source tells what to refill, and what the driver has counted.
type Source interface {
	// Attachments may answer otherwise each time; an account that it names is good until the next call.
	Attachments() (compute.Mode, []Attachment)
	// Changed returns a channel. It is closed soon after Attachments begins to answer otherwise than at this call.
	Changed() <-chan struct{}
	// Used returns what the driver's samples after since tell of each grant on a GPU. An error means that the driver
	// does not tell.
	Used(ctx context.Context, gpu sharing.GPURef, since time.Time) (Use, error)
}

// Use is what a driver's samples tell of the grants on one GPU.
type Use struct {
	// To is when the last of the samples was taken; zero: none tells of a process.
	To time.Time
	// Busy is the percent of the time until then that any process used, and Percent that of each grant. A missing one
	// was in no sample.
	Busy    int
	Percent map[compute.ID]int
	// Doubt are the grants with samples that could not be used.
	Doubt map[compute.ID]bool
}

// Throttle refills. Its fields are not changed while it runs.
type Throttle struct {
	Source Source
	Log    *slog.Logger

	gpus map[sharing.GPURef]*gpu
}

// gpu is what is remembered of one GPU between steps.
type gpu struct {
	controller compute.Controller
	samples    compute.Samples
	counts     map[compute.ID]Counts        // at the last step
	unsettled  map[compute.ID]time.Duration // what ran since it was settled last
	seen       time.Time                    // until when the driver has answered, or gave no answer
	asked      time.Time                    // when it was asked
	failing    bool                         // the log has that an account fails
}

// Run refills until ctx ends. While there is nothing to refill, it waits for a change.
func (p *Throttle) Run(ctx context.Context) error {
	t := time.NewTimer(Every)
	defer t.Stop()
	last := time.Now()
	asked := last
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		t.Reset(pause(rand.Float64())) //nolint:gosec // a program gains nothing by knowing it
		now, changed := time.Now(), p.Source.Changed()
		ask := now.Sub(asked) >= UsedEvery
		if ask {
			asked = now
		}
		if !p.step(ctx, now, now.Sub(last), ask) {
			select {
			case <-ctx.Done():
				return nil
			case <-changed:
			}
			now = time.Now()
		}
		last = now
	}
}

// pause is the time until the next refill, for a random number from 0 to 1. Programs run on after a refill, and a
// driver samples at a steady pace. With steady refills, a program could be in every sample or in none, whatever its
// share is.
func pause(random float64) time.Duration {
	return Every*3/4 + time.Duration(random*float64(Every/2))
}

// step refills after passed, and reports whether there was an attachment. With ask it first asks the driver about the
// time that no answer covers yet.
func (p *Throttle) step(ctx context.Context, now time.Time, passed time.Duration, ask bool) bool {
	mode, attachments := p.Source.Attachments()
	by := map[sharing.GPURef][]Attachment{}
	for _, l := range attachments {
		by[l.GPU] = append(by[l.GPU], l)
	}
	if p.gpus == nil {
		p.gpus = map[sharing.GPURef]*gpu{}
	}
	for id := range p.gpus {
		if by[id] == nil {
			delete(p.gpus, id)
		}
	}
	for id, on := range by {
		if p.gpus[id] == nil {
			p.gpus[id] = &gpu{counts: map[compute.ID]Counts{}, unsettled: map[compute.ID]time.Duration{},
				seen: now, asked: now}
		}
		var reported answer
		if ask {
			reported = p.ask(ctx, p.gpus[id], id, now)
		}
		p.refill(mode, p.gpus[id], now, passed, on, reported)
	}
	return len(attachments) > 0
}

// answer is what the driver said of a GPU, if it was asked; window is of what time, 0 if it did not tell.
type answer struct {
	Use
	asked  bool
	window time.Duration
}

// of is what was said of one grant.
func (a answer) of(id compute.ID) compute.Sampled {
	part := func(percent int) time.Duration { return a.window * time.Duration(percent) / 100 }
	return compute.Sampled{Window: a.window, Busy: part(a.Busy), Used: part(a.Percent[id]), Doubt: a.Doubt[id]}
}

// ask asks the driver. Of time of which it does not tell it is not asked again: what was charged then stands.
func (p *Throttle) ask(ctx context.Context, g *gpu, id sharing.GPURef, now time.Time) answer {
	ctx, cancel := context.WithTimeout(ctx, usedDeadline)
	defer cancel()
	since, before := g.seen, g.asked
	g.asked = now
	use, err := p.Source.Used(ctx, id, since)
	if err != nil || !use.To.After(since) || use.To.Sub(now) > UsedEvery {
		g.seen = now
		return answer{asked: true}
	}
	g.seen = use.To
	return answer{use, true, now.Sub(before)} // samples are a part of time; what was charged is of this time
}

// refill does one GPU.
func (p *Throttle) refill(mode compute.Mode, g *gpu, now time.Time, passed time.Duration,
	attachments []Attachment, driver answer) {
	grants, seen, failed := g.read(attachments, driver)
	ran := map[compute.ID]time.Duration{}
	for i, r := range g.controller.Step(mode, passed, grants, seen) {
		if _, ok := seen[r.ID]; !ok {
			continue
		}
		if err := attachments[i].Account.AddTokens(r.Add, r.Launch); err != nil {
			failed = err
		}
		ran[r.ID] = g.unsettled[r.ID] + r.Ran
	}
	g.unsettled = ran
	if driver.asked {
		if err := g.settle(now, attachments, driver); err != nil {
			failed = err
		}
	}
	if (failed != nil) != g.failing {
		g.failing = failed != nil
		if failed != nil {
			p.Log.Warn("failed to refill GPU time budget", "gpu", attachments[0].GPU.String(), "error", failed.Error())
		}
	}
}

// settle tells the accounts that were read what is known since the driver was asked before.
func (g *gpu) settle(now time.Time, attachments []Attachment, driver answer) (failed error) {
	g.samples.Forget(now)
	if driver.window > 0 {
		reported := map[compute.ID]compute.Sampled{}
		for id := range g.unsettled {
			reported[id] = driver.of(id)
		}
		g.samples.Add(now, reported, g.unsettled)
	}
	for _, l := range attachments {
		ran, read := g.unsettled[l.Grant.ID]
		if !read {
			continue
		}
		used, known := g.samples.Share(l.Grant.ID)
		if err := l.Account.Settle(ran, used, known); err != nil {
			failed = err
		}
	}
	g.unsettled = map[compute.ID]time.Duration{}
	return failed
}

// read reads the accounts. The error is of the last one that failed.
func (g *gpu) read(attachments []Attachment, driver answer) (grants []compute.Grant, seen map[compute.ID]compute.Seen,
	failed error) {
	seen = map[compute.ID]compute.Seen{}
	counts := map[compute.ID]Counts{}
	for _, l := range attachments {
		grants = append(grants, l.Grant)
		now, err := l.Account.Read()
		if err != nil {
			failed = err
			continue
		}
		s := compute.Seen{Balance: now.Balance}
		before, known := g.counts[l.Grant.ID]
		counts[l.Grant.ID] = now
		if known { // what was charged before the first reading cannot be corrected
			s = now.since(before)
			s.Requested, s.Sampled = driver.asked, driver.of(l.Grant.ID)
		}
		seen[l.Grant.ID] = s
	}
	g.counts = counts
	return grants, seen, failed
}
