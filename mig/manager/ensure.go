// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package manager keeps a node's GPUs in the MIG state that its pool requires, and creates instances for grants.
//
// A Manager recovers each GPU, sets its MIG mode and creates fixed layouts. It answers what a GPU could give to a
// request, creates the chosen instance, and destroys instances that were idle for long enough. Package exec does every
// change of a GPU: with a journal, and never to an instance that is in use or unmanaged.
//
// Promises: Offer calls no driver, so callers may hold a lock. Its offers overlap no known grant. A GPU that cannot
// be recovered reports an error and offers nothing; others continue. One GPU has one operation at a time.
//
// Not promised: that what was offered is there a moment later. Ensure makes it, or says why it cannot.
package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/mig/exec"
	"github.com/kerf-gpu/kerf/mig/plan"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
)

// Ensure creates the instance of a grant unless it exists, and returns it. The ledger has the grant, so no other grant
// takes the place. It may be called again. If the instance existed, warm is true. The error is sharing.ErrNotFound for
// no such GPU, and sharing.ErrConflict if an instance in use or an unmanaged one is in the way. It is
// sharing.ErrUnavailable if the GPU has an error or is in use, and else the driver's.
func (m *Manager) Ensure(ctx context.Context, gpu sharing.GPUID, in sharing.Instance, who string) (d sharing.MIGDevice,
	warm bool, err error) {
	p := m.page(gpu)
	if p == nil {
		return d, false, fmt.Errorf("mig instance %s of gpu %q: %w", in, string(gpu), sharing.ErrNotFound)
	}
	at := mig.Place{Profile: in.ID, Start: in.Start}
	p.note(func(s *seen) { s.creating[at] = who })
	defer p.note(func(s *seen) { delete(s.creating, at) })
	ctx, cancel := context.WithTimeout(ctx, createDeadline)
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
		m.opt.Log.Info("created MIG instance", "gpu", string(gpu), "profile", in.Profile, "start", in.Start, "for", who,
			"uuid", own.UUID)
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
	// An admin may change the GPU between the read and the change. Then read it once more.
	for again := range 2 {
		have, err := p.exec.Observe(ctx, p.gpu)
		if err != nil {
			return exec.Own{}, false, err //nolint:wrapcheck // as above
		}
		for i := range have {
			if have[i].Managed && have[i].Place == at {
				have[i].Users = nil // the grant's instance: it is not ready, so no process can use it
			}
		}
		made, err := plan.Make(plan.Request{Table: table, Values: values, Have: have,
			Wishes: []plan.Wish{{Profile: at.Profile, Start: at.Start, For: who}}})
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
	if len(a.BlockedBy) > 0 {
		return a.Reason + "; in the way: " + strings.Join(a.BlockedBy, ", ")
	}
	return a.Reason
}

// Desired is what a pool wants of one GPU.
type Desired struct {
	// Leave is true where the pool says nothing of its MIG mode.
	Leave bool
	// Auto is true where the mode is demand's to change: nothing else says what it is to be.
	Auto bool
	// On is the MIG mode that is wanted, if not Leave.
	On bool
	// Fixed are all the instances that the GPU has; nil where they are created on demand.
	Fixed []config.MIGCount
	// Shared is true where the instances are shared, and none is given whole.
	Shared bool
}

// wanted is what the current pool requires of the GPU. Demand changes no mode if settings are read-only.
func (d *deps) wanted(g sharing.GPU) Desired {
	w := Wanted(d.opt.Pool(), g)
	w.Auto = w.Auto && !d.opt.ReadOnly
	return w
}

// mayChange rejects a change where settings are read-only.
func (d *deps) mayChange(what string) error {
	if d.opt.ReadOnly {
		return &sharing.ReadOnlyError{Change: what}
	}
	return nil
}

// Wanted is the layout of the pool for the GPU. Of several matching layouts the last one counts. Without one, a pool of
// MIG instances enables MIG mode on GPUs that support it. A pool that offers everything leaves the mode to demand,
// unless it says otherwise.
func Wanted(pool config.Pool, g sharing.GPU) Desired {
	for _, l := range slices.Backward(pool.MIGLayouts) {
		if !means(l, g) {
			continue
		}
		w := Desired{On: l.Enabled, Shared: l.Shared}
		for _, n := range l.Instances {
			if n.Count > 0 {
				w.Fixed = append(w.Fixed, n)
			}
		}
		return w
	}
	switch cmp.Or(pool.Of(g).Mode, pool.Mode) {
	case config.ModeMIG:
		return Desired{On: true}
	case config.ModeAuto:
		return Desired{Leave: true, Auto: pool.FollowsDemand() && !pool.Of(g).Excluded}
	case config.ModeShared, config.ModeWhole:
	}
	return Desired{Leave: true}
}

func means(l config.MIGLayout, g sharing.GPU) bool {
	if len(l.GPUs) > 0 && !slices.Contains(l.GPUs, g.Index) {
		return false
	}
	product := config.PCIName(g.Product)
	board := product + ":" + config.PCIName(g.Board)
	return len(l.PCI) == 0 || slices.ContainsFunc(l.PCI, func(id string) bool {
		return strings.EqualFold(id, product) || strings.EqualFold(id, board)
	})
}

// String says it in a few words.
func (w Desired) String() string {
	switch {
	case w.Auto:
		return "as pods request"
	case w.Leave:
		return "as it is"
	case !w.On:
		return "off"
	case len(w.Fixed) == 0:
		return "on, created on demand"
	}
	var texts []string
	for _, n := range w.Fixed {
		texts = append(texts, fmt.Sprintf("%s: %d", n.Profile, n.Count))
	}
	text := "{" + strings.Join(texts, ", ") + "}"
	if w.Shared {
		text += ", shared"
	}
	return text
}

func (w Desired) equal(v Desired) bool {
	return w.Leave == v.Leave && w.Auto == v.Auto && w.On == v.On && w.Shared == v.Shared &&
		slices.Equal(w.Fixed, v.Fixed)
}
