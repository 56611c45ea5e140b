// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"context"
	"errors"
	"fmt"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
)

// Recover makes a GPU usable: at start, before its instances are offered, and again, with growing pauses, while it has
// an error. An interrupted change is finished, or else undone. After a reboot, MIG mode and layout are set again.
//
// mayReset is SetMode's. An error is why the GPU is not usable; UnavailableReason then returns it, too. A GPU without
// MIG support is usable, and has no instances.
func (e *Executor) Recover(ctx context.Context, gpu GPU, mayReset bool) error {
	g := e.of(gpu)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gpu, g.settled = gpu, false
	if err := g.recover(ctx, mayReset); err != nil && !g.settled {
		g.trouble = sharing.Plain(err)
		return fmt.Errorf("recover mig instances of gpu %q: %w", string(gpu.ID), err)
	}
	g.settled, g.trouble = true, ""
	return nil
}

func (g *state) recover(ctx context.Context, mayReset bool) error {
	if !g.loaded {
		if err := g.load(ctx); err != nil {
			return err
		}
		g.loaded = true
	}
	rebooted := g.remake()
	if err := g.turned(ctx); err != nil {
		return err
	}
	if err := g.mode(ctx, rebooted, mayReset); err != nil {
		return err
	}
	if g.journal.Change != nil {
		return g.settle(ctx)
	}
	return g.observe(ctx)
}

// load reads the journal.
func (g *state) load(ctx context.Context) error {
	g.journal, g.mine = journal{}, nil
	data, err := g.opts.Store.Load(g.gpu.ID)
	if err != nil || data == nil {
		return err //nolint:wrapcheck // it says what was read
	}
	j, err := decode(data)
	if err == nil && j.GPU != string(g.gpu.ID) {
		err = fmt.Errorf("%w: it is another GPU's", errDamaged)
	}
	if errors.Is(err, errDamaged) {
		return g.withoutJournal(ctx, err)
	}
	if err != nil {
		return err
	}
	g.journal, g.mine = j, fromOwned(j.Mine)
	return nil
}

// withoutJournal accepts a damaged journal where there is no instance whose maker it would have to tell.
func (g *state) withoutJournal(ctx context.Context, damage error) error {
	seen, err := g.opts.Driver.Instances(ctx, g.gpu.ID)
	if errors.Is(err, sharing.ErrUnsupported) {
		return nil
	}
	if err == nil && len(seen) > 0 {
		err = fmt.Errorf("cannot determine which of %d MIG instances Kerf made: destroy them with nvidia-smi mig, and "+
			"Kerf recovers", len(seen))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%w: %w", damage, err), sharing.ErrUnavailable)
	}
	return nil
}

// remake turns what another boot left into the wish to have it again, and returns whether there was one.
func (g *state) remake() bool {
	j := &g.journal
	if j.BootID == "" || j.BootID == g.opts.BootID {
		return false
	}
	wanted := places(g.mine)
	if j.Change != nil {
		wanted = fromPlaces(j.Change.Wanted)
		if j.Change.Undo {
			wanted = fromPlaces(j.Change.Before)
		}
	}
	j.BootID, j.Change, j.Turning, g.mine = g.opts.BootID, nil, nil, nil
	if len(wanted) > 0 {
		j.Change = &change{Before: toPlaces([]mig.Place{}), Wanted: toPlaces(wanted), Remake: true}
	}
	return true
}

// mode restores the MIG mode that Kerf uses, if that takes no reset or may take one. If Kerf has nothing on the GPU
// and an admin ended the mode in this boot, the mode stays off. A later request sets it again.
func (g *state) mode(ctx context.Context, rebooted, mayReset bool) error {
	used := g.journal.Mode || g.journal.Change != nil
	m, err := g.opts.Driver.Mode(ctx, g.gpu.ID)
	switch {
	case errors.Is(err, sharing.ErrUnsupported) && !used:
		return nil
	case err != nil:
		return fmt.Errorf("read mig mode: %w", err)
	case g.journal.Ending && m.Current == m.Pending: // it has ended, or was not requested; a later request starts again
		g.journal.Ending = false
		return g.save()
	case g.journal.Ending && (!m.NeedsReset || mayReset):
		return g.setMode(ctx, false, mayReset)
	case used && !rebooted && !m.Current && !m.Pending && g.journal.Change == nil && len(g.mine) == 0:
		g.journal.Mode = false
		return g.save()
	case used && !m.Current && m.NeedsReset && !mayReset:
		return fmt.Errorf("MIG mode is off, and takes a reset of the GPU: %w", sharing.ErrUnavailable)
	case used && !m.Current:
		return g.enter(ctx, true, m.NeedsReset)
	case m.Current != m.Pending:
		return fmt.Errorf("MIG mode changes with the GPU's next reset, or once it is idle: %w", sharing.ErrUnavailable)
	}
	return nil
}
