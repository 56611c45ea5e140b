// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"

	"github.com/kerf-gpu/kerf/sharing"
)

// Lend sets what a lease is lent on a GPU beyond its fragment, 0 for nothing. More is lent only of what is free
// there, on a GPU that takes claims, up to the fragment's Burst: what is guaranteed to anybody, in use or not, is
// never lent, and no byte is lent twice. Less is always taken: the caller has then lowered the cap.
//
// Errors: ErrNotFound for an unknown claim, or one without a fragment there; ErrInvalid for more than its Burst;
// ErrConflict without a lease, or while only a part of the claim is in force; ErrLost or ErrUnavailable for a GPU
// that is lost or not healthy, ErrExhausted for more than is free.
func (l *Ledger) Lend(id ClaimID, gpu sharing.GPURef, lent sharing.Bytes) error {
	e, ok := l.claims[id]
	if !ok {
		return fmt.Errorf("lend to claim %q: %w", id, sharing.ErrNotFound)
	}
	if err := l.gpus[gpu].checkLend(e, gpu, lent); err != nil {
		return fmt.Errorf("lend to claim %q: gpu %q: %w", id, gpu, err)
	}
	l.setLent(e, gpu, lent)
	l.gpus[gpu].relieve()
	return nil
}

func (g *gpu) checkLend(e *entry, id sharing.GPURef, lent sharing.Bytes) error {
	f, ok := e.claim.Placement.On(id)
	had := e.lent[id]
	switch {
	case !ok:
		return fmt.Errorf("it has no fragment there: %w", sharing.ErrNotFound)
	case lent <= had:
		return nil
	case e.lease == nil || len(e.lease.Part) > 0:
		return fmt.Errorf("nothing, or only a part of it, is in use: %w", sharing.ErrConflict)
	case lent > f.Burst.SubFloor(f.Memory):
		return fmt.Errorf("%s and %s lent is more than %s, its most: %w", f.Memory, lent, f.Burst, sharing.ErrInvalid)
	}
	if err := g.alive(); err != nil {
		return err
	}
	free := min(g.view().FreeMemory, g.facts.Usable().SubFloor(g.held.memory).SubFloor(g.lent))
	if lent-had > free {
		return fmt.Errorf("%s free, %s more to be lent: %w", free, lent-had, sharing.ErrExhausted)
	}
	return nil
}

// setLent writes a checked loan into the books.
func (l *Ledger) setLent(e *entry, gpu sharing.GPURef, lent sharing.Bytes) {
	l.touch(e)
	page := l.gpus[gpu]
	page.lent, _ = page.lent.SubFloor(e.lent[gpu]).Add(lent) // checked by the caller
	delete(e.lent, gpu)
	if lent == 0 {
		return
	}
	if e.lent == nil {
		e.lent = map[sharing.GPURef]sharing.Bytes{}
	}
	e.lent[gpu] = lent
}

// assumeLent books a lease that is a fact as lent all that it may be, since nobody knows yet what it is.
func (l *Ledger) assumeLent(e *entry) {
	if len(e.lease.Part) > 0 {
		return
	}
	for _, f := range e.claim.Placement {
		page, most := l.gpus[f.GPU], f.Burst.SubFloor(f.Memory)
		if _, err := page.lent.Add(most); err != nil {
			continue // absurd: no GPU has so much, and nothing is granted beside it
		}
		l.setLent(e, f.GPU, most)
		page.excuse()
	}
}
