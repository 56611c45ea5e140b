// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
)

// pages are the GPUs of the node: what is known of each, and what is booked on it.
type pages struct {
	// gpus has every GPU of the last inventory, and every GPU on which a grant is booked.
	gpus map[sharing.GPURef]*gpu
	// cordons has the GPUs that take no new grants, and why; each page of such a GPU says so.
	cordons map[sharing.GPUID]string
}

// SetInventory sets the node's GPUs to those that the driver has now. GPUs may appear, shrink, change health or be
// gone: grants on them stay reserved. A GPU that is gone is HealthLost while grants are on it. An inventory with an
// impossible or doubled GPU changes nothing; the error wraps ErrInvalid.
func (p *pages) SetInventory(inventory []sharing.GPU) error {
	seen := make(map[sharing.GPURef]bool, len(inventory))
	var errs []error
	for _, g := range inventory {
		if err := g.Validate(); err != nil {
			errs = append(errs, err)
		} else if seen[g.Ref()] {
			errs = append(errs, fmt.Errorf("gpu %q is there twice: %w", g.Ref(), sharing.ErrInvalid))
		}
		seen[g.Ref()] = true
	}
	if len(errs) > 0 {
		return fmt.Errorf("set inventory: %w", errors.Join(errs...))
	}
	for _, g := range inventory {
		page := p.page(g.Ref())
		page.facts, page.present = g.Clone(), true
		page.facts.Cordoned = p.cordons[g.UUID]
		page.excuse()
	}
	for id, page := range p.gpus {
		if !seen[id] {
			page.present = false
			page.excuse()
			page.facts.Health, page.facts.HealthReason = sharing.HealthLost, "gone from the driver"
			p.tidy(id)
		}
	}
	return nil
}

// SetHealth changes what is known of one GPU's hardware; reason is for people. Grants on it stay. The error
// wraps ErrNotFound for a GPU that the inventory does not have.
func (p *pages) SetHealth(id sharing.GPURef, h sharing.Health, reason string) error {
	page, ok := p.gpus[id]
	if !ok || !page.present {
		return fmt.Errorf("set health of gpu %q: %w", id, sharing.ErrNotFound)
	}
	page.facts.Health, page.facts.HealthReason = h, reason
	return nil
}

// SetCordons says which GPUs take no new grants, and why, in the place of what was said before. Grants on them stay,
// and so does the word over inventories, also for a GPU that comes later.
func (p *pages) SetCordons(why map[sharing.GPUID]string) {
	p.cordons = maps.Clone(why)
	for id, page := range p.gpus {
		page.facts.Cordoned = why[id.UUID]
	}
}

// page returns the GPU's page, a new one for a GPU that has none.
func (p *pages) page(id sharing.GPURef) *gpu {
	page, ok := p.gpus[id]
	if !ok {
		facts := id.GPU()
		facts.Index, facts.NUMA, facts.HealthReason, facts.Cordoned = -1, -1, "not in the inventory", p.cordons[id.UUID]
		page = &gpu{facts: facts}
		p.gpus[id] = page
	}
	return page
}

// tidy drops the page of a GPU that is gone once no grant is on it.
func (p *pages) tidy(id sharing.GPURef) {
	if page := p.gpus[id]; page != nil && !page.present && page.held.grants == 0 {
		delete(p.gpus, id)
	}
}

// GPUs returns all GPUs, by index and UUID: those of the inventory, and those that are gone with grants on
// them.
func (p *pages) GPUs() []View {
	out := make([]View, 0, len(p.gpus))
	for _, g := range p.gpus {
		out = append(out, g.view())
	}
	slices.SortFunc(out, func(a, b View) int { return a.GPU.Compare(&b.GPU) })
	return out
}

// GPU returns one GPU's page.
func (p *pages) GPU(id sharing.GPURef) (View, bool) {
	g, ok := p.gpus[id]
	if !ok {
		return View{}, false
	}
	return g.view(), true
}

// Overbooked returns the GPUs on which more is booked than they have, by index and UUID.
func (p *pages) Overbooked() []View {
	return slices.DeleteFunc(p.GPUs(), func(v View) bool { return !v.Overbooked })
}
