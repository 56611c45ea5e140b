// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package keep

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

// Wake asks Run to look at the GPUs now: a claim ended, say.
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

// Tick does for each GPU what is to be done now, all GPUs at once: recover it, set its mode, make its layout, and
// take away what was idle for long enough. What could not be done View tells.
func (m *Manager) Tick(ctx context.Context) { m.round(ctx, true) }

func (m *Manager) round(ctx context.Context, all bool) {
	var wg sync.WaitGroup
	for _, p := range m.pages {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, tickDeadline)
			defer cancel()
			if m.begin(p) != nil {
				return
			}
			defer p.work.Unlock()
			if m.due(p, all) {
				m.tend(ctx, p)
			}
		})
	}
	wg.Wait()
}

// due reports whether the GPU is to be looked at.
func (m *Manager) due(p *page, all bool) bool {
	now := m.opt.Now()
	if m.exec.Trouble(p.gpu) != "" {
		return !now.Before(p.retry)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	changed := !p.want.equal(m.wanted(p.facts))
	return all || changed || now.Sub(p.looked) >= lookEvery || len(m.expired(p, now)) > 0
}

// tend needs p.work.
func (m *Manager) tend(ctx context.Context, p *page) {
	p.looked = m.opt.Now()
	if m.exec.Trouble(p.gpu) != "" {
		if err := m.exec.Recover(ctx, p.gpu, m.opt.Pool().MIGReset); err != nil {
			p.pause = min(max(2*p.pause, firstRetry), mostRetry)
			p.retry = m.opt.Now().Add(p.pause)
			m.opt.Log.Warn("mig instances not recovered", "gpu", string(p.gpu.ID), "error", err.Error())
			m.note(p, func(s *seen) { s.trouble = m.exec.Trouble(p.gpu) })
			return
		}
		p.pause = 0
	}
	want := m.wanted(p.facts)
	err := m.reach(ctx, p, want)
	m.refresh(ctx, p)
	m.note(p, func(s *seen) {
		s.want, s.waits = want, ""
		if err != nil {
			s.waits = sharing.Plain(err)
		}
	})
}

// note changes what is known of a GPU.
func (m *Manager) note(p *page, change func(*seen)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.seen)
}

// reach brings the GPU to what is wanted of it, as far as it can be now; the error says why it is not there. It needs
// p.work.
func (m *Manager) reach(ctx context.Context, p *page, want Want) error {
	mode, err := m.opt.Driver.Mode(ctx, p.gpu.ID)
	switch {
	case errors.Is(err, sharing.ErrUnsupported) && (want.Leave || !want.On || len(m.opt.Pool().MIG) == 0):
		return nil // a GPU that cannot do it is none of a pool's concern unless a layout names it
	case errors.Is(err, sharing.ErrUnsupported):
		return fmt.Errorf("this GPU cannot do MIG: %w", sharing.ErrUnsupported)
	case err != nil:
		return err //nolint:wrapcheck // it says what and where
	}
	if !want.Leave && mode.Current != want.On {
		if err := m.mayChange("set mig mode"); err != nil {
			return err
		}
		if err := m.emptyFor(ctx, p, want); err != nil {
			return err
		}
		if err := m.exec.SetMode(ctx, p.gpu, want.On, m.opt.Pool().MIGReset); err != nil {
			return err //nolint:wrapcheck // as above
		}
		m.opt.Log.Info("mig mode set", "gpu", string(p.gpu.ID), "on", want.On)
		mode.Current = want.On
	}
	if !mode.Current {
		return nil
	}
	if len(want.Fixed) > 0 {
		return m.layOut(ctx, p, want)
	}
	return m.sweep(ctx, p)
}

// emptyFor takes Kerf's own idle instances off a GPU that is to leave MIG mode.
func (m *Manager) emptyFor(ctx context.Context, p *page, want Want) error {
	if want.On {
		return nil
	}
	return m.carryOut(ctx, p, nil)
}

// layOut makes a fixed layout.
func (m *Manager) layOut(ctx context.Context, p *page, want Want) error {
	table, err := m.opt.Driver.Table(ctx, p.gpu.ID)
	if err != nil {
		return err //nolint:wrapcheck // as above
	}
	wishes, err := wishesOf(table, want)
	if err != nil {
		return err
	}
	return m.carryOut(ctx, p, wishes)
}

// wishesOf are a layout's instances. An error names the profiles that the GPU has.
func wishesOf(table *mig.Table, want Want) ([]plan.Wish, error) {
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
func (m *Manager) carryOut(ctx context.Context, p *page, wishes []plan.Wish) error {
	made, have, err := m.planned(ctx, p, wishes)
	if err != nil {
		return err
	}
	if len(made.Steps) > 0 {
		if err := m.mayChange("make the mig layout"); err != nil {
			return err
		}
		if _, err := m.exec.Apply(ctx, p.gpu, made.Steps); err != nil {
			return err //nolint:wrapcheck // as above
		}
		m.opt.Log.Info("mig layout made", "gpu", string(p.gpu.ID), "steps", len(made.Steps))
	}
	return short(made, foreign(have))
}

func foreign(have []plan.Instance) int {
	n := 0
	for _, in := range have {
		if !in.Ours {
			n++
		}
	}
	return n
}

func (m *Manager) planned(ctx context.Context, p *page, wishes []plan.Wish) (plan.Plan, []plan.Instance, error) {
	table, values, err := m.tableOf(ctx, p)
	if err != nil {
		return plan.Plan{}, nil, err
	}
	have, err := m.exec.Look(ctx, p.gpu)
	if err != nil {
		return plan.Plan{}, nil, err //nolint:wrapcheck // as above
	}
	made, err := layout(plan.Ask{Table: table, Values: values, Have: have, Wishes: wishes})
	return made, have, err
}

// layout plans for the GPU to have exactly what is asked for.
func layout(ask plan.Ask) (plan.Plan, error) {
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
		case plan.Waits:
			others := slices.DeleteFunc(slices.Clone(a.WaitsFor), func(who string) bool { return who == layoutItself })
			if why = append(why, a.Why); len(others) > 0 {
				why[len(why)-1] += "; waits for " + strings.Join(others, ", ")
			}
		case plan.Never, plan.Foreign:
			why = append(why, a.Why)
		}
	}
	for _, l := range made.Left {
		why = append(why, fmt.Sprintf("an instance at %d that the layout has not waits for %s", l.Place.Start, strings.Join(l.WaitsFor, ", ")))
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
		return "an instance that Kerf did not make is left alone; destroy it with nvidia-smi mig when nobody needs it"
	}
	return fmt.Sprintf("%d instances that Kerf did not make are left alone; destroy them with nvidia-smi mig when nobody needs them", n)
}

// sweep takes away what has been idle for longer than the pool keeps it.
func (m *Manager) sweep(ctx context.Context, p *page) error {
	if m.opt.ReadOnly {
		return nil // what is idle is no trouble
	}
	p.mu.Lock()
	gone := m.expired(p, m.opt.Now())
	p.mu.Unlock()
	for _, at := range gone {
		have, err := m.exec.Look(ctx, p.gpu)
		if err != nil {
			return err //nolint:wrapcheck // as above
		}
		i := slices.IndexFunc(have, func(in plan.Instance) bool { return in.Ours && in.Place == at && len(in.Holders) == 0 })
		if i < 0 {
			continue
		}
		var steps []plan.Step
		for _, ci := range have[i].CIs {
			steps = append(steps, plan.Step{Op: plan.DestroyCI, Place: at, GI: have[i].GI, CI: ci})
		}
		if _, err := m.exec.Apply(ctx, p.gpu, append(steps, plan.Step{Op: plan.DestroyGI, Place: at, GI: have[i].GI, CI: -1})); err != nil {
			return err //nolint:wrapcheck // as above
		}
		m.opt.Log.Info("idle mig instance given back", "gpu", string(p.gpu.ID), "start", at.Start)
	}
	return nil
}

// expired are the instances that have been idle for too long; it needs p.mu. A layout's never are.
func (m *Manager) expired(p *page, now time.Time) []mig.Place {
	if len(p.want.Fixed) > 0 {
		return nil
	}
	keep := m.opt.Pool().KeepWarm()
	var out []mig.Place
	for _, o := range p.mine {
		if since, idle := p.idle[o.Place]; idle && now.Sub(since) >= keep {
			out = append(out, o.Place)
		}
	}
	return out
}

func (m *Manager) tableOf(ctx context.Context, p *page) (*mig.Table, *mig.Values, error) {
	p.mu.Lock()
	table, values := p.table, p.values
	p.mu.Unlock()
	if table != nil {
		return table, values, nil
	}
	table, err := m.opt.Driver.Table(ctx, p.gpu.ID)
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // as above
	}
	values = mig.NewValues(table, nil)
	m.note(p, func(s *seen) { s.table, s.values = table, values })
	return table, values, nil
}

// refresh takes in what is on the GPU. It needs p.work.
func (m *Manager) refresh(ctx context.Context, p *page) {
	trouble := m.exec.Trouble(p.gpu)
	mode, err := m.opt.Driver.Mode(ctx, p.gpu.ID)
	if errors.Is(err, sharing.ErrUnsupported) {
		m.note(p, func(s *seen) { s.trouble, s.on, s.turns, s.mine, s.foreign = "", false, false, nil, nil })
		return
	}
	p.reset = mode.NeedsReset
	turns := err == nil && m.mayTurn(p, mode.Current)
	var mine []exec.Own
	var foreign []exec.Instance
	if err == nil && (mode.Current || turns) {
		if _, _, err = m.tableOf(ctx, p); err != nil && !mode.Current {
			turns, err = false, nil // it is shared all the same; some drivers may tell no profiles outside of MIG mode
		}
	}
	if err == nil && trouble == "" {
		mine, foreign, err = m.exec.List(ctx, p.gpu)
	}
	if err != nil && trouble == "" {
		trouble = sharing.Plain(err)
	}
	held, herr := m.opt.Claims(p.gpu.ID)
	now := m.opt.Now()
	m.note(p, func(s *seen) {
		s.trouble, s.on, s.turns = trouble, mode.Current, turns
		if trouble == "" {
			s.mine, s.foreign = mine, foreign
		}
		s.age(held, herr == nil, now)
		if turns && s.on && s.turned.IsZero() {
			s.turned = now // by a process before this one: nobody knows when
		}
	})
	if turns {
		busy := m.keeps(ctx, p, now)
		m.note(p, func(s *seen) { s.busy = busy })
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
