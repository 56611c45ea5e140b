// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"

	"github.com/kerf-gpu/kerf/sharing"
)

// SetBurst sets the burst memory of an attachment on a GPU, 0 for none. It adds only memory that is free there, on a
// GPU that takes grants, up to the share's Burst. The ledger never uses guaranteed memory for this, and no byte twice.
// It always accepts a smaller amount: the caller has then lowered the cap.
//
// ErrNotFound: an unknown grant, or one without a share there. ErrInvalid: more than its Burst. ErrConflict: no
// attachment, or only a part of the grant is enforced. ErrLost or ErrUnavailable: the GPU is lost or not healthy.
// ErrExhausted: more than is free.
func (l *Ledger) SetBurst(id GrantID, gpu sharing.GPURef, burstNow sharing.Bytes) error {
	e, ok := l.grants[id]
	if !ok {
		return fmt.Errorf("lend to grant %q: %w", id, sharing.ErrNotFound)
	}
	if err := l.gpus[gpu].checkLend(e, gpu, burstNow); err != nil {
		return fmt.Errorf("lend to grant %q: gpu %q: %w", id, gpu, err)
	}
	l.setBurst(e, gpu, burstNow)
	l.gpus[gpu].relieve()
	return nil
}

func (g *gpu) checkLend(e *entry, id sharing.GPURef, burstNow sharing.Bytes) error {
	f, ok := e.grant.Placement.On(id)
	had := e.burst[id]
	switch {
	case !ok:
		return fmt.Errorf("it has no share there: %w", sharing.ErrNotFound)
	case burstNow <= had:
		return nil
	case e.active == nil || len(e.active.Part) > 0:
		return fmt.Errorf("nothing, or only a part of it, is in use: %w", sharing.ErrConflict)
	case burstNow > f.Burst.SubFloor(f.Memory):
		return fmt.Errorf("%s guaranteed and %s burst memory exceed its maximum %s: %w", f.Memory, burstNow, f.Burst,
			sharing.ErrInvalid)
	}
	if err := g.alive(); err != nil {
		return err
	}
	free := min(g.view().FreeMemory, g.facts.Usable().SubFloor(g.held.memory).SubFloor(g.burst))
	if burstNow-had > free {
		return fmt.Errorf("%s free, %s more burst memory requested: %w", free, burstNow-had, sharing.ErrExhausted)
	}
	return nil
}

// setBurst records a checked amount of burst memory.
func (l *Ledger) setBurst(e *entry, gpu sharing.GPURef, burstNow sharing.Bytes) {
	l.touch(e)
	page := l.gpus[gpu]
	page.burst, _ = page.burst.SubFloor(e.burst[gpu]).Add(burstNow) // checked by the caller
	delete(e.burst, gpu)
	if burstNow == 0 {
		return
	}
	if e.burst == nil {
		e.burst = map[sharing.GPURef]sharing.Bytes{}
	}
	e.burst[gpu] = burstNow
}

// assumeBurst records the maximum burst memory of a restored attachment, because the real amount is not known yet.
func (l *Ledger) assumeBurst(e *entry) {
	if len(e.active.Part) > 0 {
		return
	}
	for _, f := range e.grant.Placement {
		page, most := l.gpus[f.GPU], f.Burst.SubFloor(f.Memory)
		if _, err := page.burst.Add(most); err != nil {
			continue // absurd: no GPU has so much, and nothing else is granted
		}
		l.setBurst(e, f.GPU, most)
		page.excuse()
	}
}
