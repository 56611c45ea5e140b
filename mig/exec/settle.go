// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/mig/plan"
	"github.com/kerf-gpu/kerf/sharing"
)

// settle finishes the change that the journal has, else undoes it, else leaves the GPU in trouble. It returns why the
// change was not finished.
func (g *state) settle(ctx context.Context) error {
	g.settled = false
	var failed error
	if !g.journal.Change.Undo {
		failed = g.converge(ctx)
	}
	if failed != nil && g.journal.Change.Remake {
		g.trouble = sharing.Plain(failed)
		return failed
	}
	if failed != nil {
		g.journal.Change.Undo = true // is on disk before the next call, like all of the journal
	}
	if g.journal.Change.Undo {
		// Without cancellation: what ended the change must not leave half of it.
		if err := g.converge(context.WithoutCancel(ctx)); err != nil {
			failed = errors.Join(failed, fmt.Errorf("undo: %w", err))
			g.trouble = sharing.Plain(failed)
			return failed
		}
	}
	last := g.journal.Change
	g.journal.Change = nil
	if err := g.save(); err != nil {
		g.journal.Change = last
		g.trouble = sharing.Plain(err)
		return errors.Join(failed, err)
	}
	g.settled, g.trouble = true, ""
	return failed
}

// goal is where Kerf's instances are to be.
func (g *state) goal() []mig.Place {
	if g.journal.Change.Undo {
		return fromPlaces(g.journal.Change.Before)
	}
	return fromPlaces(g.journal.Change.Wanted)
}

// converge makes and destroys Kerf's instances until they match the goal, and verifies them. It retries what is in
// use. It reads the GPU before each try, because a failed call may have had an effect.
func (g *state) converge(ctx context.Context) error {
	pause := firstPause
	for failures := 1; ; failures++ {
		err := g.steps(ctx)
		if err == nil {
			return nil
		}
		if _, disk := errors.AsType[*saveError](err); disk || !errors.Is(err, sharing.ErrUnavailable) ||
			failures == attempts {
			return err
		}
		if stop := g.opts.Wait(ctx, pause); stop != nil {
			return errors.Join(err, stop)
		}
		pause *= 2
	}
}

// steps is one attempt of converge.
func (g *state) steps(ctx context.Context) error {
	if err := g.observe(ctx); err != nil {
		return err
	}
	for {
		step, more := next(g.mine, g.goal())
		if !more {
			break
		}
		if err := g.do(ctx, step); err != nil {
			return err
		}
	}
	if err := g.observe(ctx); err != nil {
		return err
	}
	if step, more := next(g.mine, g.goal()); more {
		return fmt.Errorf("read back: the profile %d at %d is not as it was left: %w", step.Place.Profile,
			step.Place.Start, sharing.ErrUnavailable)
	}
	return nil
}

// do makes one call, after the journal has it. Before it destroys, it reads the GPU again: an admin may have replaced
// the instance and reused its id.
func (g *state) do(ctx context.Context, s plan.Step) error {
	ends := s.Op == plan.DestroyCI || s.Op == plan.DestroyGI
	if ends {
		holds, err := g.allHolds(ctx)
		if err != nil {
			return err
		}
		if by := who(holds, s.GI); len(by) > 0 {
			return fmt.Errorf("%s: it is held by %q: %w", name(s), by, sharing.ErrUnavailable)
		}
	}
	g.journal.Change.Doing = &doing{s.Op.String(), place{s.Place.Profile, s.Place.Start}, s.GI}
	if err := g.save(); err != nil {
		return err
	}
	if ends {
		if err := g.still(ctx, s); err != nil {
			return err
		}
	}
	err := g.call(ctx, s)
	if err == nil || !errors.Is(err, sharing.ErrUnavailable) {
		// The change is done and noted, or not done. Any other instance belongs to others.
		g.journal.Change.Doing = nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name(s), err)
	}
	return nil
}

// still looks whether what is to go is Kerf's, before the call is made that the journal has.
func (g *state) still(ctx context.Context, s plan.Step) error {
	doing := g.journal.Change.Doing
	g.journal.Change.Doing = nil // nothing was called yet
	if err := g.observe(ctx); err != nil {
		return err
	}
	if !slices.ContainsFunc(g.mine, func(o Own) bool { return o.Place == s.Place && o.GI == s.GI && o.CI == s.CI }) {
		return fmt.Errorf("%s: it is not there any more as Kerf made it: %w", name(s), sharing.ErrUnavailable)
	}
	g.journal.Change.Doing = doing
	return nil
}

func name(s plan.Step) string {
	return fmt.Sprintf("%s of profile %d at %d", s.Op, s.Place.Profile, s.Place.Start)
}

// call makes the call, and notes what it made.
func (g *state) call(ctx context.Context, s plan.Step) error {
	d, id := g.opts.Driver, g.gpu.ID
	i := slices.IndexFunc(g.mine, func(o Own) bool { return o.Place == s.Place })
	switch s.Op {
	case plan.DestroyCI:
		if err := d.DestroyCI(ctx, id, s.GI, s.CI); err != nil {
			return err //nolint:wrapcheck // the caller names the step
		}
		g.mine[i].CI, g.mine[i].UUID = -1, ""
	case plan.DestroyGI:
		if err := d.DestroyGI(ctx, id, s.GI); err != nil {
			return err //nolint:wrapcheck // the caller names the step
		}
		g.mine = slices.Delete(g.mine, i, i+1)
	case plan.CreateGI:
		gi, err := d.CreateGI(ctx, id, s.Place)
		if err != nil {
			return err //nolint:wrapcheck // the caller names the step
		}
		g.mine = append(g.mine, Own{s.Place, gi, -1, ""})
	case plan.CreateCI:
		c, err := d.CreateCI(ctx, id, s.GI)
		if err != nil {
			return err //nolint:wrapcheck // the caller names the step
		}
		g.mine[i].CI, g.mine[i].UUID = c.CI, c.UUID
	}
	return nil
}

// observe reads the GPU and finds the owners of its instances. An instance that an admin destroyed or replaced is no
// longer Kerf's.
func (g *state) observe(ctx context.Context) error {
	seen, err := g.opts.Driver.Instances(ctx, g.gpu.ID)
	if errors.Is(err, sharing.ErrUnsupported) { // a GPU that cannot do MIG has none
		err = nil
	}
	if err != nil {
		return fmt.Errorf("list mig instances: %w", err)
	}
	had := places(g.mine)
	g.journal.Mine = toOwned(g.mine)
	g.mine, g.foreign = identify(g.journal, seen)
	g.forget(had)
	return nil
}

// forget removes instances that others have destroyed from a change. Their places may be in use again.
func (g *state) forget(had []mig.Place) {
	c := g.journal.Change
	if c == nil {
		return
	}
	lost := func(p place) bool {
		return slices.Contains(had, p.mig()) && !slices.Contains(places(g.mine), p.mig()) &&
			(c.Doing == nil || c.Doing.place != p)
	}
	c.Wanted = slices.DeleteFunc(slices.Clone(c.Wanted), func(p place) bool {
		return slices.Contains(c.Before, p) &&
			lost(p)
	})
	c.Before = slices.DeleteFunc(slices.Clone(c.Before), lost)
}
