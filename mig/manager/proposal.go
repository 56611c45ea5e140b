// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/mig/plan"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
)

// Propose says what is to be done for the GPUs to be as the pool wants them. It changes nothing.
func (m *Manager) Propose(ctx context.Context, pool config.Pool) []mig.Proposal {
	var out []mig.Proposal
	for _, p := range m.pages {
		one := mig.Proposal{GPU: p.gpu.ID, Index: p.facts.Index}
		err := p.begin()
		if err == nil {
			err = p.propose(ctx, Wanted(pool, p.facts), pool, &one)
			p.work.Unlock()
		}
		if err != nil {
			one.PendingReason = sharing.Plain(err)
		}
		out = append(out, one)
	}
	return out
}

// propose needs p.work.
func (p *page) propose(ctx context.Context, want Desired, pool config.Pool, to *mig.Proposal) error {
	mode, err := p.opt.Driver.Mode(ctx, p.gpu.ID)
	switch {
	case want.Leave || errors.Is(err, sharing.ErrUnsupported) && (!want.On || len(pool.MIGLayouts) == 0):
		return nil
	case errors.Is(err, sharing.ErrUnsupported):
		return fmt.Errorf("this GPU cannot do MIG: %w", sharing.ErrUnsupported)
	case err != nil:
		return err //nolint:wrapcheck // it says what and where
	case !mode.Current && !want.On:
		return nil
	}
	var made plan.Plan
	var have []plan.Instance
	short := error(nil)
	if mode.Current && (!want.On || len(want.Fixed) > 0) || len(want.Fixed) > 0 {
		if made, have, short, err = p.toLayout(ctx, want, mode.Current); err != nil {
			return err
		}
	}
	if !mode.Current {
		to.Steps = append(to.Steps, setting("on", mode.NeedsReset))
		if mode.NeedsReset && !pool.AllowGPUReset {
			short = errors.Join(short, fmt.Errorf(
				"MIG mode takes a reset of this GPU, which the pool does not allow: %w", sharing.ErrDenied))
		}
	}
	p.mu.Lock()
	table := p.table
	p.mu.Unlock()
	to.Steps = append(to.Steps, said(table, made.Steps)...)
	if !want.On {
		to.Steps = append(to.Steps, setting("off", mode.NeedsReset))
		short = errors.Join(short, modeStays(have, mode.NeedsReset && !pool.AllowGPUReset))
	}
	if table != nil && len(to.Steps) > 0 {
		to.Units, to.After = table.Axis(), after(table, have, made.Steps)
	}
	return short
}

// modeStays returns what keeps a GPU in MIG mode apart from users of its instances; nil if nothing does.
func modeStays(have []plan.Instance, denied bool) error {
	var why error
	if n := foreign(have); n > 0 {
		why = fmt.Errorf("MIG mode ends once the GPU has no instance; %s: %w", theirs(n), sharing.ErrConflict)
	}
	if denied {
		why = errors.Join(why, fmt.Errorf(
			"the end of MIG mode takes a reset of this GPU, which the pool does not allow: %w", sharing.ErrDenied))
	}
	return why
}

func setting(mode string, reset bool) string {
	if reset {
		return "set MIG mode " + mode + ", with a reset of the GPU"
	}
	return "set MIG mode " + mode
}

// toLayout plans a layout, on an empty GPU where that is not in MIG mode yet; short says what it leaves undone.
func (p *page) toLayout(ctx context.Context, want Desired, create bool) (made plan.Plan, have []plan.Instance, leaves,
	err error) {
	table, values, err := p.tableOf(ctx)
	if err != nil {
		return plan.Plan{}, nil, nil, err
	}
	wishes, err := wishesOf(table, want)
	if err != nil {
		return plan.Plan{}, nil, nil, err
	}
	if create {
		if have, err = p.exec.Observe(ctx, p.gpu); err != nil {
			return plan.Plan{}, nil, nil, err //nolint:wrapcheck // as above
		}
	}
	made, err = layout(plan.Request{Table: table, Values: values, Have: have, Wishes: wishes})
	return made, have, short(made, foreign(have)), err
}

// said are a plan's steps for people: an instance's compute instance goes and comes with it.
func said(t *mig.Table, steps []plan.Step) []string {
	var out []string
	for i, s := range steps {
		name := fmt.Sprintf("%s at %d", t.Name(s.Place.Profile), s.Place.Start)
		switch s.Op {
		case plan.DestroyGI:
			out = append(out, "destroy "+name)
		case plan.CreateGI:
			out = append(out, "create "+name)
		case plan.DestroyCI:
			if i+1 == len(steps) || steps[i+1].Op == plan.CreateCI {
				out = append(out, "empty "+name)
			}
		case plan.CreateCI:
			if i == 0 || steps[i-1].Op != plan.CreateGI {
				out = append(out, "make ready "+name)
			}
		}
	}
	return out
}

// after are the instances that there are once the steps are done.
func after(t *mig.Table, have []plan.Instance, steps []plan.Step) []mig.Instance {
	var out []mig.Instance
	for _, in := range have {
		out = append(out, mig.Instance{Instance: instance(t, in.Place), Managed: in.Managed, Ready: true})
	}
	for _, s := range steps {
		in := instance(t, s.Place)
		switch s.Op {
		case plan.DestroyGI:
			out = slices.DeleteFunc(out, func(p mig.Instance) bool { return p.Managed && p.Instance == in })
		case plan.CreateGI:
			out = append(out, mig.Instance{Instance: in, Managed: true, Ready: true})
		case plan.DestroyCI, plan.CreateCI:
		}
	}
	slices.SortFunc(out, func(a, b mig.Instance) int { return cmp.Compare(a.Start, b.Start) })
	return out
}
