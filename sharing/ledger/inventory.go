// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"errors"
	"fmt"
	"maps"

	"github.com/kerf-gpu/kerf/sharing"
)

// SetInventory takes in the node's GPUs as the driver has them now. GPUs may appear, shrink, change health or
// be gone: claims on them stay booked, and a GPU that is gone is HealthLost while claims are on it. An
// inventory with an impossible or doubled GPU changes nothing; the error wraps ErrInvalid.
func (l *Ledger) SetInventory(inventory []sharing.GPU) error {
	seen := make(map[sharing.GPUID]bool, len(inventory))
	var errs []error
	for _, g := range inventory {
		if err := g.Validate(); err != nil {
			errs = append(errs, err)
		} else if seen[g.UUID] {
			errs = append(errs, fmt.Errorf("gpu %q is there twice: %w", g.UUID, sharing.ErrInvalid))
		}
		seen[g.UUID] = true
	}
	if len(errs) > 0 {
		return fmt.Errorf("set inventory: %w", errors.Join(errs...))
	}
	for _, g := range inventory {
		page := l.page(g.UUID)
		page.facts, page.present = g.Clone(), true
		page.facts.Cordoned = l.cordons[g.UUID.Device()]
		page.excuse()
	}
	for id, page := range l.gpus {
		if !seen[id] {
			page.present = false
			page.excuse()
			page.facts.Health, page.facts.HealthReason = sharing.HealthLost, "gone from the driver"
			l.tidy(id)
		}
	}
	return nil
}

// SetHealth changes what is known of one GPU's hardware; reason is for people. Claims on it stay. The error
// wraps ErrNotFound for a GPU that the inventory does not have.
func (l *Ledger) SetHealth(id sharing.GPUID, h sharing.Health, reason string) error {
	page, ok := l.gpus[id]
	if !ok || !page.present {
		return fmt.Errorf("set health of gpu %q: %w", id, sharing.ErrNotFound)
	}
	page.facts.Health, page.facts.HealthReason = h, reason
	return nil
}

// SetCordons says which GPUs take no new claims, and why, in the place of what was said before. Claims on them stay, and so
// does the word over inventories, also for a GPU that comes later.
func (l *Ledger) SetCordons(why map[sharing.GPUID]string) {
	l.cordons = maps.Clone(why)
	for id, page := range l.gpus {
		page.facts.Cordoned = why[id.Device()]
	}
}

// page returns the GPU's page, a new one for a GPU that has none.
func (l *Ledger) page(id sharing.GPUID) *gpu {
	page, ok := l.gpus[id]
	if !ok {
		page = &gpu{facts: sharing.GPU{UUID: id, Index: -1, NUMA: -1, HealthReason: "not in the inventory", Cordoned: l.cordons[id.Device()]}}
		l.gpus[id] = page
	}
	return page
}

// tidy drops the page of a GPU that is gone once no claim is on it.
func (l *Ledger) tidy(id sharing.GPUID) {
	if page := l.gpus[id]; page != nil && !page.present && page.held.claims == 0 {
		delete(l.gpus, id)
	}
}
