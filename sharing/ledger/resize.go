// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"

	"github.com/kerf-gpu/kerf/sharing"
)

// Resized returns p with this total memory, divided evenly over its shares. Compute does not change. Errors:
// ErrUnsupported for whole GPUs, which have no other amount. A *sharing.FieldError for an amount that does not divide
// into whole bytes, or into less than sharing.MinShare each.
func Resized(p sharing.Placement, total sharing.Bytes) (sharing.Placement, error) {
	n := sharing.Bytes(len(p))
	switch {
	case n == 0:
		return nil, fmt.Errorf("it has no share of any gpu: %w", sharing.ErrUnsupported)
	case total%n != 0:
		return nil, sharing.Invalid("amount", total.String(), "write a multiple of "+n.String(),
			"does not divide evenly over its %d GPUs", len(p))
	case total/n < sharing.MinShare:
		return nil, sharing.Invalid("amount", total.String(), "write at least "+sharing.MinShare.String()+
			" for each GPU", "is too little for %d GPUs", len(p))
	}
	out := p.Clone()
	for i := range out {
		if out[i].Whole {
			return nil, fmt.Errorf("it has gpu %q whole, which has no other size: %w", out[i].GPU,
				sharing.ErrUnsupported)
		}
		if !out[i].MIG.None() {
			return nil, fmt.Errorf("it has a MIG instance of gpu %q, which has no other size: %w", out[i].GPU,
				sharing.ErrUnsupported)
		}
		out[i].Memory = total / n
	}
	return out, nil
}

// Resize changes the memory of a grant's shares to that of to, all of them or none. A share grows only into free
// memory of a GPU that takes grants, or into its attachment's burst memory. It can always shrink. The ledger does not
// check usage: the caller lowers a cap before it shrinks the grant, and raises it afterwards.
//
// ErrNotFound: an unknown grant. ErrInvalid: to differs in more than memory, has less than sharing.MinShare, or a sum
// does not fit in 64 bits. ErrUnsupported: a whole GPU or one in MIG mode. ErrConflict: less than an init container
// uses. ErrLost or ErrUnavailable: the GPU is lost or not healthy. ErrExhausted: not enough free memory.
func (l *Ledger) Resize(id GrantID, to sharing.Placement) error {
	e, ok := l.grants[id]
	if !ok {
		return fmt.Errorf("resize grant %q: %w", id, sharing.ErrNotFound)
	}
	if err := l.checkResize(e, to); err != nil {
		return fmt.Errorf("resize grant %q: %w", id, err)
	}
	l.touch(e)
	partial := e.active != nil && len(e.active.Part) > 0
	e.grant.Request.Memory = 0
	for i, f := range to {
		page, old := l.gpus[f.GPU], e.grant.Placement[i]
		page.held, _ = page.held.without(old).with(f) // checked above; no GPU is twice in a placement
		if e.active != nil && !partial {
			page.active, _ = page.active.without(old).with(f) // active <= held, which does not wrap
		}
		e.grant.Placement[i] = f
		if f.Memory > old.Memory {
			l.setBurst(e, f.GPU, e.burst[f.GPU].SubFloor(f.Memory-old.Memory)) // its burst memory becomes guaranteed
		}
		page.relieve()
		e.grant.Request.Memory, _ = e.grant.Request.Memory.Add(f.Memory) // for people: held says what is booked
	}
	return nil
}

func (l *Ledger) checkResize(e *entry, to sharing.Placement) error {
	from := e.grant.Placement
	if len(to) != len(from) {
		return fmt.Errorf("%d shares for %d: %w", len(to), len(from), sharing.ErrInvalid)
	}
	for i, f := range to {
		if err := l.gpus[from[i].GPU].checkGrown(from[i], f, e.burst[f.GPU]); err != nil {
			return fmt.Errorf("gpu %q: %w", from[i].GPU, err)
		}
	}
	if e.active == nil {
		return nil
	}
	if err := checkPart(to, e.active.Part); err != nil {
		return fmt.Errorf("an init container uses more of it: %w: %w", err, sharing.ErrConflict)
	}
	return nil
}

// checkGrown checks that a share can take another's place. The burst memory of its attachment counts as free.
func (g *gpu) checkGrown(from, to sharing.Share, burstNow sharing.Bytes) error {
	same := from
	same.Memory = to.Memory
	switch {
	case from.Whole:
		return fmt.Errorf("held whole, and so of one size: %w", sharing.ErrUnsupported)
	case !from.MIG.None():
		return fmt.Errorf("a MIG instance, and so of one size: %w", sharing.ErrUnsupported)
	case same != to || to.Memory < sharing.MinShare:
		return fmt.Errorf("%+v cannot become %+v: %w", from, to, sharing.ErrInvalid)
	case to.Memory <= from.Memory:
		return nil
	case g.facts.MIG:
		return fmt.Errorf("in MIG mode: %w", sharing.ErrUnsupported)
	}
	if err := g.alive(); err != nil {
		return err
	}
	afterwards := *g
	afterwards.burst = g.burst.SubFloor(min(burstNow, to.Memory-from.Memory))
	return afterwards.room(g.held.without(from), to)
}
