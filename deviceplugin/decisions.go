// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// decisions keeps the lists up to date until ctx ends, and has new endpoints served.
func (p *Plugin) decisions(ctx context.Context, serve func(*endpoint)) {
	var (
		decided *Inventory
		matters = true
		failing bool
		ticked  bool
	)
	for {
		p.mu.Lock()
		inv, on := p.inv, p.on
		p.mu.Unlock()

		wait := p.seldom
		// Who holds what decides nothing while all is well, and it changes with each start of a container.
		matters = matters || inv != decided
		if inv != nil && (matters || ticked) {
			// Who holds what is looked at first, because the choice depends on it. While all is well nobody is
			// asked: kubelet bears only so many questions, and a List can cost a pod its ids (Holdings).
			if matters {
				err := p.look(ctx)
				if err != nil && ctx.Err() == nil && !failing {
					p.opts.Log.Warn("who holds which id is not known now; the last known stays", "error", err)
				}
				failing = err != nil
			}
			for _, e := range p.grow(*inv) {
				serve(e)
			}
			matters = p.post(*inv, on) || failing
			decided = inv
			if failing {
				wait = p.often
			}
		}
		ticked = false
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-p.kick:
		case <-t.C:
			ticked = true
		}
		t.Stop()
	}
}

// look reads who holds what. What cannot be read changes nothing.
func (p *Plugin) look(ctx context.Context) error {
	if p.opts.Holdings == nil {
		p.held = map[sharing.ContainerRef]map[string][]string{}
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, holdingsDeadline)
	defer cancel()
	held, err := p.opts.Holdings.List(ctx)
	if err != nil {
		return err
	}
	if held == nil {
		held = map[sharing.ContainerRef]map[string][]string{}
	}
	p.held = held
	return nil
}

// post decides and puts up what is new. It reports whether who holds what matters now.
func (p *Plugin) post(inv Inventory, on map[sharing.ContainerRef][]sharing.GPUID) bool {
	matters := false
	for _, e := range p.all() {
		r := e.svc.resource
		held := make(map[sharing.ContainerRef][]string)
		for ref, ids := range p.held {
			if len(ids[r]) > 0 {
				held[ref] = ids[r]
			}
		}
		was := e.svc.board.cur.Load()
		l := decide(view{resource: r, inv: inv, held: held, known: p.held != nil, on: on, was: was})
		if was == nil && !inv.advertises(r) && len(l.devices) == 0 {
			// Never told of, and nobody has any: kubelet need not know the name.
			continue
		}
		matters = matters || l.healthy() < len(l.devices) || !inv.advertises(r) && len(l.devices) > 0
		if !l.equal(was) {
			e.svc.board.post(l)
			p.opts.Log.Info("device list", "resource", r, "ids", len(l.devices), "healthy", l.healthy())
		}
	}
	for _, u := range inv.Units {
		matters = matters || u.Lost
	}
	return matters
}
