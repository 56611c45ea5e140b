// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/mig/exec"
	"github.com/kerf-gpu/kerf/mig/plan"
	"github.com/kerf-gpu/kerf/sharing"
)

// Wake asks Run to look at the GPUs now: a grant ended, say.
func (m *Manager) Wake() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Run ticks until ctx ends, and calls after behind each round.
func (m *Manager) Run(ctx context.Context, every time.Duration, after func()) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		woken := false
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-m.wake:
			woken = true
		}
		m.round(ctx, woken)
		after()
	}
}

// Tick does the current work for each GPU, all GPUs at once. It recovers it, sets its mode, creates its layout, and
// destroys instances that were idle for long enough. View reports what failed.
func (m *Manager) Tick(ctx context.Context) { m.round(ctx, true) }

func (m *Manager) round(ctx context.Context, all bool) {
	var wg sync.WaitGroup
	for _, p := range m.pages {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, tickDeadline)
			defer cancel()
			if p.begin() != nil {
				return
			}
			defer p.work.Unlock()
			if p.due(all) {
				p.tend(ctx)
			}
		})
	}
	wg.Wait()
}

// due reports whether the GPU is to be looked at.
func (p *page) due(all bool) bool {
	now := p.opt.Now()
	if p.exec.UnavailableReason(p.gpu) != "" {
		return !now.Before(p.retry)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	changed := !p.want.equal(p.wanted(p.facts))
	return all || changed || now.Sub(p.looked) >= lookEvery || len(p.expired(now)) > 0
}

// tend needs p.work.
func (p *page) tend(ctx context.Context) {
	p.looked = p.opt.Now()
	if p.exec.UnavailableReason(p.gpu) != "" {
		if err := p.exec.Recover(ctx, p.gpu, p.opt.Pool().AllowGPUReset); err != nil {
			p.pause = min(max(2*p.pause, firstRetry), mostRetry)
			p.retry = p.opt.Now().Add(p.pause)
			p.opt.Log.Warn("failed to recover MIG instances", "gpu", string(p.gpu.ID), "error", err.Error())
			p.note(func(s *seen) { s.trouble = p.exec.UnavailableReason(p.gpu) })
			return
		}
		p.pause = 0
	}
	want := p.wanted(p.facts)
	err := p.reach(ctx, want)
	p.refresh(ctx)
	p.note(func(s *seen) {
		s.want, s.waits = want, ""
		if err != nil {
			s.waits = sharing.Plain(err)
		}
	})
}

// note changes what is known of a GPU.
func (p *page) note(change func(*seen)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.seen)
}

// reach brings the GPU to what is wanted of it, as far as it can be now; the error says why it is not there. It needs
// p.work.
func (p *page) reach(ctx context.Context, want Desired) error {
	mode, err := p.opt.Driver.Mode(ctx, p.gpu.ID)
	switch {
	case errors.Is(err, sharing.ErrUnsupported) && (want.Leave || !want.On || len(p.opt.Pool().MIGLayouts) == 0):
		return nil // a GPU that cannot do it is none of a pool's concern unless a layout names it
	case errors.Is(err, sharing.ErrUnsupported):
		return fmt.Errorf("this GPU cannot do MIG: %w", sharing.ErrUnsupported)
	case err != nil:
		return err //nolint:wrapcheck // it says what and where
	}
	if !want.Leave && mode.Current != want.On {
		if err := p.mayChange("set mig mode"); err != nil {
			return err
		}
		if err := p.emptyFor(ctx, want); err != nil {
			return err
		}
		if err := p.exec.SetMode(ctx, p.gpu, want.On, p.opt.Pool().AllowGPUReset); err != nil {
			return err //nolint:wrapcheck // as above
		}
		p.opt.Log.Info("switched MIG mode", "gpu", string(p.gpu.ID), "on", want.On)
		mode.Current = want.On
	}
	if !mode.Current {
		return nil
	}
	if len(want.Fixed) > 0 {
		return p.layOut(ctx, want)
	}
	return p.sweep(ctx)
}

// emptyFor takes Kerf's own idle instances off a GPU that is to leave MIG mode.
func (p *page) emptyFor(ctx context.Context, want Desired) error {
	if want.On {
		return nil
	}
	return p.carryOut(ctx, nil)
}

// layOut makes a fixed layout.
func (p *page) layOut(ctx context.Context, want Desired) error {
	table, err := p.opt.Driver.Table(ctx, p.gpu.ID)
	if err != nil {
		return err //nolint:wrapcheck // as above
	}
	wishes, err := wishesOf(table, want)
	if err != nil {
		return err
	}
	return p.carryOut(ctx, wishes)
}

// wishesOf are a layout's instances. An error names the profiles that the GPU has.
func wishesOf(table *mig.Table, want Desired) ([]plan.Wish, error) {
	var wishes []plan.Wish
	for _, n := range want.Fixed {
		profile, err := table.Lookup("mig.instances", n.Profile)
		if err != nil {
			return nil, err //nolint:wrapcheck // as above
		}
		for range n.Count {
			wishes = append(wishes, plan.Wish{Profile: profile.ID, Start: plan.Any, For: layoutItself})
		}
	}
	return wishes, nil
}

// carryOut gives the GPU exactly these instances of ours, as far as those that are held let it.
func (p *page) carryOut(ctx context.Context, wishes []plan.Wish) error {
	made, have, err := p.planned(ctx, wishes)
	if err != nil {
		return err
	}
	if len(made.Steps) > 0 {
		if err := p.mayChange("make the mig layout"); err != nil {
			return err
		}
		if _, err := p.exec.Apply(ctx, p.gpu, made.Steps); err != nil {
			return err //nolint:wrapcheck // as above
		}
		p.opt.Log.Info("created MIG layout", "gpu", string(p.gpu.ID), "steps", len(made.Steps))
	}
	return short(made, foreign(have))
}

func foreign(have []plan.Instance) int {
	n := 0
	for _, in := range have {
		if !in.Managed {
			n++
		}
	}
	return n
}

func (p *page) planned(ctx context.Context, wishes []plan.Wish) (plan.Plan, []plan.Instance, error) {
	table, values, err := p.tableOf(ctx)
	if err != nil {
		return plan.Plan{}, nil, err
	}
	have, err := p.exec.Observe(ctx, p.gpu)
	if err != nil {
		return plan.Plan{}, nil, err //nolint:wrapcheck // as above
	}
	made, err := layout(plan.Request{Table: table, Values: values, Have: have, Wishes: wishes})
	return made, have, err
}

// layout plans for the GPU to have exactly what is asked for.
func layout(ask plan.Request) (plan.Plan, error) {
	ask.Exact = true
	made, err := plan.Make(ask)
	if errors.Is(err, sharing.ErrInvalid) {
		return made, fmt.Errorf("this GPU can never have that layout: %w", err)
	}
	return made, err //nolint:wrapcheck // as above
}

// layoutItself is who a layout's instances are for.
const layoutItself = "the layout"

// short says what a plan leaves undone, on a GPU with so many instances that are not Kerf's.
func short(made plan.Plan, foreign int) error {
	var why []string
	for _, a := range made.Answers {
		switch a.State {
		case plan.Ready, plan.Made:
		case plan.Pending:
			others := slices.DeleteFunc(slices.Clone(a.BlockedBy), func(who string) bool { return who == layoutItself })
			if why = append(why, a.Reason); len(others) > 0 {
				why[len(why)-1] += "; waits for " + strings.Join(others, ", ")
			}
		case plan.Never, plan.Unmanaged:
			why = append(why, a.Reason)
		}
	}
	for _, l := range made.Left {
		why = append(why, fmt.Sprintf("an instance at %d that the layout has not waits for %s", l.Place.Start,
			strings.Join(l.BlockedBy, ", ")))
	}
	if len(why) == 0 {
		return nil
	}
	if foreign > 0 {
		why = append(why, theirs(foreign))
	}
	return fmt.Errorf("%s: %w", strings.Join(slices.Compact(why), "; "), sharing.ErrUnavailable)
}

// theirs says what Kerf does with instances that others made, and what to do about them.
func theirs(n int) string {
	if n == 1 {
		return "an instance that Kerf did not make is left alone; destroy it with nvidia-smi mig when it is unused"
	}
	return fmt.Sprintf("%d instances that Kerf did not make are left alone; destroy them with nvidia-smi mig when "+
		"they are unused", n)
}

// sweep takes away what has been idle for longer than the pool keeps it.
func (p *page) sweep(ctx context.Context) error {
	if p.opt.ReadOnly {
		return nil // what is idle is no trouble
	}
	p.mu.Lock()
	gone := p.expired(p.opt.Now())
	p.mu.Unlock()
	for _, at := range gone {
		have, err := p.exec.Observe(ctx, p.gpu)
		if err != nil {
			return err //nolint:wrapcheck // as above
		}
		i := slices.IndexFunc(have, func(in plan.Instance) bool {
			return in.Managed && in.Place == at &&
				len(in.Users) == 0
		})
		if i < 0 {
			continue
		}
		var steps []plan.Step
		for _, ci := range have[i].CIs {
			steps = append(steps, plan.Step{Op: plan.DestroyCI, Place: at, GI: have[i].GI, CI: ci})
		}
		if _, err := p.exec.Apply(ctx, p.gpu,
			append(steps, plan.Step{Op: plan.DestroyGI, Place: at, GI: have[i].GI, CI: -1})); err != nil {
			return err //nolint:wrapcheck // as above
		}
		p.opt.Log.Info("destroyed idle MIG instance", "gpu", string(p.gpu.ID), "start", at.Start)
	}
	return nil
}

// expired are the instances that have been idle for too long; it needs p.mu. A layout's never are.
func (p *page) expired(now time.Time) []mig.Place {
	if len(p.want.Fixed) > 0 {
		return nil
	}
	keep := p.opt.Pool().IdleTTL()
	var out []mig.Place
	for _, o := range p.mine {
		if since, idle := p.idle[o.Place]; idle && now.Sub(since) >= keep {
			out = append(out, o.Place)
		}
	}
	return out
}

func (p *page) tableOf(ctx context.Context) (*mig.Table, *mig.Values, error) {
	p.mu.Lock()
	table, values := p.table, p.values
	p.mu.Unlock()
	if table != nil {
		return table, values, nil
	}
	table, err := p.opt.Driver.Table(ctx, p.gpu.ID)
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // as above
	}
	values = mig.NewValues(table, nil)
	p.note(func(s *seen) { s.table, s.values = table, values })
	return table, values, nil
}

// refresh takes in what is on the GPU. It needs p.work.
func (p *page) refresh(ctx context.Context) {
	trouble := p.exec.UnavailableReason(p.gpu)
	mode, err := p.opt.Driver.Mode(ctx, p.gpu.ID)
	if errors.Is(err, sharing.ErrUnsupported) {
		p.note(func(s *seen) { s.trouble, s.on, s.turns, s.mine, s.foreign = "", false, false, nil, nil })
		return
	}
	p.reset = mode.NeedsReset
	turns := err == nil && p.mayTurn(mode.Current)
	var mine []exec.Own
	var foreign []exec.Instance
	if err == nil && (mode.Current || turns) {
		if _, _, err = p.tableOf(ctx); err != nil && !mode.Current {
			turns, err = false, nil // it is shared all the same; some drivers may tell no profiles outside of MIG mode
		}
	}
	if err == nil && trouble == "" {
		mine, foreign, err = p.exec.List(ctx, p.gpu)
	}
	if err != nil && trouble == "" {
		trouble = sharing.Plain(err)
	}
	held, herr := p.opt.Grants(p.gpu.ID)
	now := p.opt.Now()
	p.note(func(s *seen) {
		s.trouble, s.on, s.turns = trouble, mode.Current, turns
		if trouble == "" {
			s.mine, s.foreign = mine, foreign
		}
		s.age(held, herr == nil, now)
		if turns && s.on && s.turned.IsZero() {
			s.turned = now // by an earlier process, at an unknown time
		}
	})
	if turns {
		busy := p.keeps(ctx, now)
		p.note(func(s *seen) { s.busy = busy })
	}
}

// age notes since when instances have been idle.
func (s *seen) age(held []mig.Granted, known bool, now time.Time) {
	idle := map[mig.Place]time.Time{}
	for _, o := range s.mine {
		busy := slices.ContainsFunc(held, func(c mig.Granted) bool {
			return c.Instance.ID == o.Place.Profile && c.Instance.Start == o.Place.Start && !c.Instance.None()
		})
		if !known || busy {
			continue
		}
		idle[o.Place] = now
		if since, was := s.idle[o.Place]; was {
			idle[o.Place] = since
		}
	}
	s.idle = idle
}
