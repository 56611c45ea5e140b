// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"context"
	"fmt"

	"github.com/kerf-gpu/kerf/sharing"
)

// SetMode turns a GPU's MIG mode on, and keeps it on over reboots, or off. mayReset says whether a GPU that changes its
// mode with a reset may be asked to. Errors: sharing.ErrConflict (somebody holds the GPU, or it has instances that would
// go; nothing was touched), sharing.ErrDenied (it takes a reset, which is not allowed), sharing.ErrUnavailable (the
// mode is pending, and the GPU in trouble until it is current), sharing.ErrUnsupported (no MIG on this GPU).
func (e *Executor) SetMode(ctx context.Context, gpu GPU, on, mayReset bool) error {
	g := e.of(gpu)
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.usable(); err != nil {
		return err
	}
	if err := g.setMode(ctx, on, mayReset); err != nil {
		return fmt.Errorf("set mig mode of gpu %q: %w", string(gpu.ID), err)
	}
	return nil
}

func (g *state) setMode(ctx context.Context, on, mayReset bool) error {
	m, err := g.opts.Driver.Mode(ctx, g.gpu.ID)
	if err != nil {
		return err //nolint:wrapcheck // the caller says what for
	}
	if err := g.observe(ctx); err != nil {
		return err
	}
	switch n := len(g.mine) + len(g.foreign); {
	case m.Current == on && m.Pending == on:
		g.journal.Mode, g.journal.Ending = on, false
		return g.save()
	case n > 0:
		return fmt.Errorf("it has %d instances, of which Kerf did not make %d; the mode changes once it has none: %w", n, len(g.foreign), sharing.ErrConflict)
	case m.NeedsReset && !mayReset:
		return fmt.Errorf("this GPU takes a reset for it, which the pool does not allow: %w", sharing.ErrDenied)
	}
	return g.enter(ctx, on, m.NeedsReset)
}

// enter sets the mode of a GPU that nobody may hold; reset says that it takes one.
func (g *state) enter(ctx context.Context, on, reset bool) error {
	resume, err := g.clear(ctx, reset)
	if err != nil {
		return err
	}
	defer resume()
	g.journal.Mode, g.journal.Ending = on, !on
	if err := g.save(); err != nil {
		return err
	}
	current, err := g.opts.Driver.SetMode(ctx, g.gpu.ID, on)
	if err != nil {
		return fmt.Errorf("set mig mode: %w", err)
	}
	if !current {
		g.settled = false
		g.trouble = "MIG mode is pending: the GPU needs a reset, or is in use"
		return fmt.Errorf("%s: %w", g.trouble, sharing.ErrUnavailable)
	}
	if on {
		return nil
	}
	g.journal.Ending = false // a mode that somebody sets by hand later on is theirs
	return g.save()
}
