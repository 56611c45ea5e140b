// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
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
			// First read which container has which id, because the choice depends on it. While all GPUs are healthy,
			// do not read: each List loads kubelet and can cost a pod its ids (PodResources).
			if matters {
				err := p.look(ctx)
				if err != nil && ctx.Err() == nil && !failing {
					p.opts.Log.Warn("failed to read assigned device IDs, using the last known", "error", err)
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
	if p.opts.PodResources == nil {
		p.held = map[sharing.ContainerRef]map[string][]string{}
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, listDeadline)
	defer cancel()
	held, err := p.opts.PodResources.List(ctx)
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
func (p *Plugin) post(inv Inventory, on map[sharing.ContainerRef][]sharing.GPURef) bool {
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
			// Never advertised, and no container has any: kubelet need not know the name.
			continue
		}
		matters = matters || l.healthy() < len(l.devices) || !inv.advertises(r) && len(l.devices) > 0
		if !l.equal(was) {
			e.svc.board.post(l)
			p.opts.Log.Info("sent device list to kubelet", "resource", r, "ids", len(l.devices), "healthy", l.healthy())
		}
	}
	for _, u := range inv.Units {
		matters = matters || u.Lost
	}
	return matters
}

// answer is the CDI names of a container that gets these ids: the hook device and the amount. For whole GPUs they also
// say how many should be of which NUMA node. It is a pure function of the list's resource, the number of ids and their
// NUMA nodes. It answers unhealthy ids as well, because kubelet decides on health. The error is a *sharing.FieldError
// that names the id.
func (l *list) answer(ids []string) ([]string, error) {
	if len(ids) == 0 {
		return nil, sharing.Invalid(l.resource, "", "", "was requested without an id")
	}
	if len(ids) > len(l.devices) {
		return nil, sharing.Invalid(l.resource, fmt.Sprint(len(ids)), "", "is more ids than the %d there are",
			len(l.devices))
	}
	taken := make([]bool, len(l.devices))
	var near [sharing.MaxNUMA]int
	for _, s := range ids {
		i, ok := l.at[s]
		if !ok {
			return nil, sharing.Invalid(l.resource, s, "", "is no id of this node")
		}
		if taken[i] {
			return nil, sharing.Invalid(l.resource, s, "", "was named twice")
		}
		taken[i] = true
		if n := l.devices[i].numa; n != NoNUMA {
			near[n]++
		}
	}
	names := []string{
		sharing.HookDevice,
		sharing.ResourceRequest{Resource: strings.TrimPrefix(l.resource, sharing.Domain+"/"), Count: len(ids)}.Device(),
	}
	for numa, count := range near {
		if count > 0 {
			names = append(names, sharing.NUMAAffinity{NUMA: numa, Count: count}.Device())
		}
	}
	return names, nil
}

// board holds the newest list of one resource. Readers never wait for a writer: Allocate reads it.
type board struct {
	cur atomic.Pointer[list]

	mu      sync.Mutex
	changed chan struct{}
}

func newBoard() *board { return &board{changed: make(chan struct{})} }

// post publishes a list and drops the former one, read or not.
func (b *board) post(l *list) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cur.Store(l)
	close(b.changed)
	b.changed = make(chan struct{})
}

// read returns the newest list, nil before the first, and a channel that is closed when there is a newer one.
func (b *board) read() (*list, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cur.Load(), b.changed
}
