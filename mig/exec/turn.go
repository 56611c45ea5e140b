// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"context"
	"errors"
	"fmt"

	"github.com/kerf-gpu/kerf/sharing"
)

// SwitchMode changes the MIG mode of a GPU without holders and instances, or restores it. Unlike SetMode, it takes back
// a mode that does not become current at once. mayReset is as in SetMode. Errors: those of SetMode, and
// sharing.ErrStale if others have set that mode already.
func (e *Executor) SwitchMode(ctx context.Context, gpu GPU, on, mayReset bool) error {
	g := e.of(gpu)
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.usable(); err != nil {
		return err
	}
	if err := g.turn(ctx, on, mayReset); err != nil {
		return fmt.Errorf("change mig mode of gpu %q: %w", string(gpu.ID), err)
	}
	return nil
}

// SwitchedByKerf reports whether Kerf has put the GPU in MIG mode, so that it may take it out again.
func (e *Executor) SwitchedByKerf(gpu GPU) bool {
	g := e.of(gpu)
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.journal.Mode
}

// Users are those who hold anything of the GPU, as people know them. Errors are those of Observe.
func (e *Executor) Users(ctx context.Context, gpu GPU) ([]string, error) {
	g := e.of(gpu)
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.usable(); err != nil {
		return nil, err
	}
	holds, err := g.holds(ctx)
	var names []string
	for _, h := range holds {
		names = append(names, h.Who)
	}
	return names, err
}

func (g *state) turn(ctx context.Context, on, mayReset bool) error {
	m, err := g.opts.Driver.Mode(ctx, g.gpu.ID)
	if err != nil {
		return err //nolint:wrapcheck // the caller says what for
	}
	if err := g.observe(ctx); err != nil {
		return err
	}
	switch n := len(g.mine) + len(g.foreign); {
	case m.Current != m.Pending:
		return fmt.Errorf("another mode is pending: %w", sharing.ErrConflict)
	case m.Current == on:
		return fmt.Errorf("it has that mode already: %w", sharing.ErrStale)
	case n > 0:
		return fmt.Errorf("it has %d instances: %w", n, sharing.ErrConflict)
	case m.NeedsReset && !mayReset:
		return fmt.Errorf("this GPU takes a reset for it, which the pool does not allow: %w", sharing.ErrDenied)
	}
	resume, err := g.clear(ctx, m.NeedsReset)
	if err != nil {
		return err
	}
	defer resume()
	g.journal.Turning = &on
	if err := g.save(); err != nil {
		g.journal.Turning = nil
		return err
	}
	current, failed := g.opts.Driver.SetMode(ctx, g.gpu.ID, on)
	if failed == nil && !current {
		failed = fmt.Errorf("the GPU is in use, or cannot be reset now: %w", sharing.ErrUnavailable)
	}
	// A failed call may have had an effect. The check must run even if the context of the call has ended.
	g.settled = false
	if err := g.turned(context.WithoutCancel(ctx)); err != nil {
		g.trouble = sharing.Plain(err)
		return errors.Join(failed, err)
	}
	g.settled = true
	if g.journal.Mode != on {
		return failed
	}
	return nil
}

// turned ends a change of mode that SwitchMode has begun, as the GPU is: a mode that is pending is taken back.
func (g *state) turned(ctx context.Context) error {
	if g.journal.Turning == nil {
		return nil
	}
	m, err := g.opts.Driver.Mode(ctx, g.gpu.ID)
	if err == nil && m.Pending != m.Current {
		if _, err = g.opts.Driver.SetMode(ctx, g.gpu.ID, m.Current); err == nil {
			m, err = g.opts.Driver.Mode(ctx, g.gpu.ID)
		}
	}
	switch {
	case err != nil:
		return fmt.Errorf("take back a change of mig mode: %w", err)
	case m.Pending != m.Current:
		return fmt.Errorf("MIG mode changes with the GPU's next reset, or once it is idle: %w", sharing.ErrUnavailable)
	}
	last, was := g.journal.Turning, g.journal.Mode
	if m.Current == *last {
		g.journal.Mode = m.Current
	}
	g.journal.Turning = nil
	if err := g.save(); err != nil {
		g.journal.Turning, g.journal.Mode = last, was
		return err
	}
	return nil
}

// clear verifies that the GPU has no holder, and releases what Kerf itself holds.
func (g *state) clear(ctx context.Context, reset bool) (resume func(), err error) {
	holds, err := g.allHolds(ctx)
	if err != nil {
		return nil, err
	}
	if len(holds) > 0 {
		return nil, fmt.Errorf("the GPU is held by %s: %w", holds[0].Who, sharing.ErrConflict)
	}
	if g.opts.Quiesce == nil {
		return func() {}, nil
	}
	why := Ends
	if reset {
		why = Resets
	}
	if resume, err = g.opts.Quiesce(ctx, g.gpu.ID, why); err != nil {
		return nil, fmt.Errorf("let go of the GPU: %w", err)
	}
	return resume, nil
}

// SetMode enables a GPU's MIG mode, also over reboots, or disables it. If the change takes a reset, mayReset allows it.
// Errors:
//   - sharing.ErrConflict: a process or an instance is on the GPU; nothing changed.
//   - sharing.ErrDenied: it takes a reset, which is not allowed.
//   - sharing.ErrUnavailable: the mode is pending, and the GPU unusable until then.
//   - sharing.ErrUnsupported: the GPU has no MIG.
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
		return fmt.Errorf("it has %d instances, of which Kerf did not make %d; the mode changes once it has none: %w",
			n, len(g.foreign), sharing.ErrConflict)
	case m.NeedsReset && !mayReset:
		return fmt.Errorf("this GPU takes a reset for it, which the pool does not allow: %w", sharing.ErrDenied)
	}
	return g.enter(ctx, on, m.NeedsReset)
}

// enter sets the mode of a GPU without holders. reset says that it takes one.
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
	g.journal.Ending = false // a mode that an admin sets later is not Kerf's
	return g.save()
}
