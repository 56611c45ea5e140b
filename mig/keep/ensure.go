// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package keep

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/mig/exec"
	"github.com/kerf-gpu/kerf/mig/plan"
	"github.com/kerf-gpu/kerf/sharing"
)

// Ensure makes the instance that a claim has, where it is not there yet, and returns it. The claim is in the books, so
// that nobody takes the place meanwhile. It may be called again. warm is true where nothing was to be done. Errors:
// sharing.ErrNotFound (no such GPU), sharing.ErrConflict (something that is held, or was made by others, is in the way),
// sharing.ErrUnavailable (the GPU is in trouble, or in use), and the driver's.
func (m *Manager) Ensure(ctx context.Context, gpu sharing.GPUID, in sharing.Instance, who string) (d sharing.MIGDevice, warm bool, err error) {
	p := m.page(gpu)
	if p == nil {
		return d, false, fmt.Errorf("mig instance %s of gpu %q: %w", in, string(gpu), sharing.ErrNotFound)
	}
	at := mig.Place{Profile: in.ID, Start: in.Start}
	p.note(func(s *seen) { s.cutting[at] = who })
	defer p.note(func(s *seen) { delete(s.cutting, at) })
	ctx, cancel := context.WithTimeout(ctx, cutDeadline)
	defer cancel()
	if err := p.begin(); err != nil {
		return d, false, err
	}
	defer p.work.Unlock()
	own, warm, err := p.ensure(ctx, at, who)
	if !warm || err != nil {
		p.refresh(context.WithoutCancel(ctx))
	}
	if err != nil {
		return d, false, fmt.Errorf("mig instance %s of gpu %q: %w", in, string(gpu), err)
	}
	p.note(func(s *seen) { delete(s.idle, at) })
	if !warm {
		m.opt.Log.Info("mig instance cut", "gpu", string(gpu), "profile", in.Profile, "start", in.Start, "for", who, "uuid", own.UUID)
	}
	return sharing.MIGDevice{GPU: gpu, UUID: own.UUID, GI: own.GI, CI: own.CI}, warm, nil
}

// ensure needs p.work.
func (p *page) ensure(ctx context.Context, at mig.Place, who string) (exec.Own, bool, error) {
	mine, _, err := p.exec.List(ctx, p.gpu)
	if err != nil {
		return exec.Own{}, false, err //nolint:wrapcheck // it says what and where
	}
	ready := func(o exec.Own) bool { return o.Place == at && o.CI >= 0 }
	if i := slices.IndexFunc(mine, ready); i >= 0 {
		return mine[i], true, nil
	}
	if err := p.mayChange("create mig instance"); err != nil {
		return exec.Own{}, false, err
	}
	table, values, err := p.tableOf(ctx)
	if err != nil {
		return exec.Own{}, false, err
	}
	// Somebody may change the GPU by hand between the look and the change: then it is looked at again, once.
	for again := range 2 {
		have, err := p.exec.Look(ctx, p.gpu)
		if err != nil {
			return exec.Own{}, false, err //nolint:wrapcheck // as above
		}
		for i := range have {
			if have[i].Ours && have[i].Place == at {
				have[i].Holders = nil // the claim's own: it is not ready, so that nobody can use it
			}
		}
		made, err := plan.Make(plan.Ask{Table: table, Values: values, Have: have, Wishes: []plan.Wish{{Profile: at.Profile, Start: at.Start, For: who}}})
		if err != nil {
			return exec.Own{}, false, err //nolint:wrapcheck // as above
		}
		if a := made.Answers[0]; a.State != plan.Made {
			return exec.Own{}, false, fmt.Errorf("%s: %w", inTheWay(a), sharing.ErrConflict)
		}
		mine, err = p.exec.Apply(ctx, p.gpu, made.Steps)
		if errors.Is(err, sharing.ErrStale) && again == 0 {
			continue
		}
		if err != nil {
			return exec.Own{}, false, err //nolint:wrapcheck // as above
		}
		if i := slices.IndexFunc(mine, ready); i >= 0 {
			return mine[i], false, nil
		}
		break
	}
	return exec.Own{}, false, fmt.Errorf("it is not there after it was made: %w", sharing.ErrUnavailable)
}

func inTheWay(a plan.Answer) string {
	if len(a.WaitsFor) > 0 {
		return a.Why + "; in the way: " + strings.Join(a.WaitsFor, ", ")
	}
	return a.Why
}
