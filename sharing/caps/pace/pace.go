// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package pace refills the budgets of GPU time that programs are charged from, at a steady pace: what each gets is
// decided by package compute.
//
// It promises that a budget which cannot be read or refilled costs the others nothing, and that a GPU whose driver does
// not tell who used it is refilled all the same, by what was charged alone. What a driver told once is set against
// what was charged over the same time.
//
// Not promised: a pace that never stumbles. What a loaded machine makes it sleep through counts for at most
// compute.MaxStep.
package pace

import (
	"context"
	"log/slog"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/caps/compute"
)

const (
	// Every is the time between two refills.
	Every = 20 * time.Millisecond
	// UsedEvery is how often the driver is asked who used the GPUs, and the time that its answer is about.
	UsedEvery = time.Second
	// usedDeadline bounds one such question.
	usedDeadline = 500 * time.Millisecond
	// mostCharged is more than a step charges: whoever is charged can write to the count.
	mostCharged = time.Minute
)

// Account is the budget of one grant on one GPU. Errors leave it as it is.
type Account interface {
	// Read returns what the budget holds and what was ever charged to it.
	Read() (balance, charged time.Duration, err error)
	// Refill adds, also nothing: that says that somebody is there.
	Refill(add time.Duration) error
	// Settle notes that so much ran since it was noted last: what the driver counted where it tells, else what was
	// charged.
	Settle(ran time.Duration) error
}

// Lease is an account to be refilled.
type Lease struct {
	GPU     sharing.GPUID
	Grant   compute.Grant // its ID is unique on the GPU
	Account Account
}

// Source tells what to refill, and what the driver has counted.
type Source interface {
	// Leases may answer otherwise each time; an account that it names is good until the next call.
	Leases() (compute.Mode, []Lease)
	// Used returns the part of the last UsedEvery, in percent, that each grant used of a GPU. Grants that are
	// missing used none. An error means that the driver does not tell.
	Used(ctx context.Context, gpu sharing.GPUID) (map[compute.ID]int, error)
}

// Pacer refills. Its fields are not changed while it runs.
type Pacer struct {
	Source Source
	Log    *slog.Logger

	gpus map[sharing.GPUID]*gpu
}

// gpu is what is remembered of one GPU between steps.
type gpu struct {
	controller compute.Controller
	charged    map[compute.ID]time.Duration // in all, at the last step
	unsettled  map[compute.ID]time.Duration // of it, since the driver was last asked
	failing    bool                         // it was told that an account fails
}

// Run refills until ctx ends.
func (p *Pacer) Run(ctx context.Context) error {
	t := time.NewTicker(Every)
	defer t.Stop()
	last := time.Now()
	asked := last
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		now := time.Now()
		ask := now.Sub(asked) >= UsedEvery
		p.step(ctx, now.Sub(last), ask, now.Sub(asked))
		if ask {
			asked = now
		}
		last = now
	}
}

// step refills after passed. With ask the driver is asked first, of the time since it was asked before.
func (p *Pacer) step(ctx context.Context, passed time.Duration, ask bool, since time.Duration) {
	mode, leases := p.Source.Leases()
	by := map[sharing.GPUID][]Lease{}
	for _, l := range leases {
		by[l.GPU] = append(by[l.GPU], l)
	}
	if p.gpus == nil {
		p.gpus = map[sharing.GPUID]*gpu{}
	}
	for id := range p.gpus {
		if by[id] == nil {
			delete(p.gpus, id)
		}
	}
	for id, on := range by {
		if p.gpus[id] == nil {
			p.gpus[id] = &gpu{charged: map[compute.ID]time.Duration{}, unsettled: map[compute.ID]time.Duration{}}
		}
		var used map[compute.ID]int
		asked := answer{asked: ask}
		if ask {
			call, cancel := context.WithTimeout(ctx, usedDeadline)
			var err error
			used, err = p.Source.Used(call, id)
			cancel()
			asked.told = err == nil
			asked.used = func(c compute.ID) time.Duration { return since * time.Duration(used[c]) / 100 }
		}
		p.refill(mode, p.gpus[id], passed, on, asked)
	}
}

// answer is what the driver said of a GPU, if it was asked and told.
type answer struct {
	asked, told bool
	used        func(compute.ID) time.Duration // since it was asked before
}

// refill does one GPU.
func (p *Pacer) refill(mode compute.Mode, g *gpu, passed time.Duration, leases []Lease, driver answer) {
	grants := make([]compute.Grant, 0, len(leases))
	seen := map[compute.ID]compute.Seen{}
	var failed error
	now, left := map[compute.ID]time.Duration{}, map[compute.ID]time.Duration{}
	for _, l := range leases {
		grants = append(grants, l.Grant)
		balance, charged, err := l.Account.Read()
		if err != nil {
			failed = err
			continue
		}
		s := compute.Seen{Balance: balance}
		before, known := g.charged[l.Grant.ID]
		now[l.Grant.ID] = charged
		if known { // what was charged before the first look is nobody's to set right
			s.Charged = max(0, min(charged-before, mostCharged))
			ran := g.unsettled[l.Grant.ID] + s.Charged
			if s.Told, s.Untold = driver.asked && driver.told, driver.asked && !driver.told; s.Told {
				s.Used = driver.used(l.Grant.ID)
				ran = s.Used
			}
			left[l.Grant.ID] = ran
			if driver.asked {
				delete(left, l.Grant.ID)
				err = l.Account.Settle(ran)
			}
		}
		if err != nil {
			failed = err
		}
		seen[l.Grant.ID] = s
	}
	g.charged, g.unsettled = now, left
	for i, r := range g.controller.Step(mode, passed, grants, seen) {
		if _, ok := seen[r.ID]; !ok {
			continue
		}
		if err := leases[i].Account.Refill(r.Add); err != nil {
			failed = err
		}
	}
	if (failed != nil) != g.failing {
		g.failing = failed != nil
		if failed != nil {
			p.Log.Warn("a budget of GPU time is not refilled", "gpu", string(leases[0].GPU), "error", failed.Error())
		}
	}
}
