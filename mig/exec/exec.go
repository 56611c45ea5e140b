// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/mig/plan"
	"github.com/kerf-gpu/kerf/sharing"
)

// Options say what an executor works with. All but Quiesce are needed.
type Options struct {
	Driver Driver
	Store  Store
	// BootID is the kernel's of this boot.
	BootID string
	// UserListers are all who may say that an instance is held.
	UserListers []UserLister
	// Last are more of them, who are asked only when something is about to end: to ask them takes longer.
	Last []UserLister
	// Quiesce lets go of a GPU what Kerf itself holds of it, and returns what takes it up again.
	Quiesce func(ctx context.Context, gpu sharing.GPUID, what Touch) (resume func(), err error)
	// Wait returns after d or with ctx's error. It paces attempts on what is in use.
	Wait func(ctx context.Context, d time.Duration) error
}

// Touch is what is about to be done to a GPU.
type Touch uint8

// These are in the order of their demands. A process with a handle never blocks the creation of an instance. It may
// block the end of one and another MIG mode, and always blocks a reset.
const (
	Makes Touch = iota
	Ends
	Resets
)

// Attempts on a GPU in use, and the pause between the first two, which doubles.
const (
	attempts   = 4
	firstPause = 250 * time.Millisecond
)

// Executor changes GPUs' MIG instances. It is safe for concurrent use; each GPU has one change at a time.
type Executor struct {
	opts Options

	mu   sync.Mutex
	gpus map[sharing.GPUID]*state
}

// state is what is known of one GPU, and what changes it.
type state struct {
	opts    *Options
	mu      sync.Mutex
	gpu     GPU
	journal journal
	loaded  bool // journal and mine are newer than what is on disk
	settled bool // Recover has succeeded, and nothing failed since
	trouble string
	mine    []Own
	foreign []Instance
}

// New returns an executor that knows no GPU: Recover makes one known.
func New(o Options) *Executor { return &Executor{opts: o, gpus: map[sharing.GPUID]*state{}} }

func (e *Executor) of(gpu GPU) *state {
	e.mu.Lock()
	defer e.mu.Unlock()
	g := e.gpus[gpu.ID]
	if g == nil {
		g = &state{opts: &e.opts, gpu: gpu, trouble: "its MIG instances were not looked at yet"}
		e.gpus[gpu.ID] = g
	}
	return g
}

// UnavailableReason says why the GPU's instances must not be offered, "" where they may.
func (e *Executor) UnavailableReason(gpu GPU) string {
	g := e.of(gpu)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.settled {
		return ""
	}
	return g.trouble
}

// Observe returns the GPU's instances for a plan, with owners and holders. Errors: sharing.ErrUnavailable for a GPU in
// an error state or with unknown holders, else the driver's.
func (e *Executor) Observe(ctx context.Context, gpu GPU) ([]plan.Instance, error) {
	g := e.of(gpu)
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.usable(); err != nil {
		return nil, err
	}
	if err := g.observe(ctx); err != nil {
		return nil, err
	}
	holds, err := g.holds(ctx)
	if err != nil {
		return nil, err
	}
	var list []plan.Instance
	for _, o := range g.mine {
		in := plan.Instance{Place: o.Place, GI: o.GI, Ready: o.CI >= 0, Managed: true, Users: who(holds, o.GI)}
		if o.CI >= 0 {
			in.CIs = []int{o.CI}
		}
		list = append(list, in)
	}
	for _, f := range g.foreign {
		in := plan.Instance{Place: f.Place, GI: f.GI, Ready: len(f.CIs) == 1 && f.CIs[0].Whole,
			Users: who(holds, f.GI)}
		for _, c := range f.CIs {
			in.CIs = append(in.CIs, c.CI)
		}
		list = append(list, in)
	}
	return list, nil
}

// List returns Kerf's instances on the GPU, and all others. Errors: those of Observe, but for the holders', who are not
// asked.
func (e *Executor) List(ctx context.Context, gpu GPU) (mine []Own, foreign []Instance, err error) {
	g := e.of(gpu)
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.usable(); err != nil {
		return nil, nil, err
	}
	if err := g.observe(ctx); err != nil {
		return nil, nil, err
	}
	return slices.Clone(g.mine), slices.Clone(g.foreign), nil
}

// Apply does the steps of a plan and returns Kerf's instances on the GPU after them. When it fails, the earlier state
// is restored, though idle instances that had gone have new ids and UUIDs; or the GPU has an error. Errors:
//   - sharing.ErrStale: the GPU is not as the plan supposes; plan again.
//   - sharing.ErrConflict: an instance that would go is in use; nothing changed.
//   - sharing.ErrUnavailable: the GPU has an error, is still in use after some attempts, or the journal cannot be
//     written.
//   - The driver's errors.
func (e *Executor) Apply(ctx context.Context, gpu GPU, steps []plan.Step) ([]Own, error) {
	g := e.of(gpu)
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.usable(); err != nil {
		return nil, err
	}
	wanted, err := g.check(ctx, steps)
	if err != nil {
		return nil, fmt.Errorf("change mig instances of gpu %q: %w", string(gpu.ID), err)
	}
	if e.opts.Quiesce != nil {
		what := Makes
		if slices.ContainsFunc(steps, func(s plan.Step) bool {
			return s.Op == plan.DestroyCI ||
				s.Op == plan.DestroyGI
		}) {
			what = Ends
		}
		resume, err := e.opts.Quiesce(ctx, gpu.ID, what)
		if err != nil {
			return nil, fmt.Errorf("let go of gpu %q: %w", string(gpu.ID), err)
		}
		defer resume()
	}
	g.journal.Change = &change{Before: toPlaces(places(g.mine)), Wanted: toPlaces(wanted)}
	if err := g.save(); err != nil {
		g.journal.Change = nil
		return nil, err
	}
	if err := g.settle(ctx); err != nil {
		return nil, fmt.Errorf("change mig instances of gpu %q: %w", string(gpu.ID), err)
	}
	return slices.Clone(g.mine), nil
}

// usable refuses a GPU in trouble.
func (g *state) usable() error {
	if g.settled {
		return nil
	}
	return fmt.Errorf("mig on gpu %q: %s: %w", string(g.gpu.ID), g.trouble, sharing.ErrUnavailable)
}

// check looks at the GPU and returns the places that Kerf's instances have after the steps. It changes nothing.
func (g *state) check(ctx context.Context, steps []plan.Step) ([]mig.Place, error) {
	table, err := g.opts.Driver.Table(ctx, g.gpu.ID)
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller says what for
	}
	if err := g.observe(ctx); err != nil {
		return nil, err
	}
	wanted := places(g.mine)
	for _, s := range steps {
		i := slices.Index(wanted, s.Place)
		switch {
		case s.Op == plan.CreateGI && i >= 0:
			return nil, fmt.Errorf("%s at %d is there already: %w", table.Name(s.Place.Profile), s.Place.Start,
				sharing.ErrStale)
		case s.Op == plan.CreateGI:
			wanted = append(wanted, s.Place)
		case i < 0:
			return nil, fmt.Errorf("%s at %d is none of Kerf's: %w", table.Name(s.Place.Profile), s.Place.Start,
				sharing.ErrStale)
		case s.GI >= 0 && !slices.ContainsFunc(g.mine, func(o Own) bool { return o.Place == s.Place && o.GI == s.GI }):
			return nil, fmt.Errorf("%s at %d has not the id %d any more: %w", table.Name(s.Place.Profile),
				s.Place.Start, s.GI, sharing.ErrStale)
		case s.Op == plan.DestroyGI:
			wanted = slices.Delete(wanted, i, i+1)
		}
	}
	all := slices.Clone(wanted)
	for _, f := range g.foreign {
		all = append(all, f.Place)
	}
	if _, err := table.Occupy(all); err != nil {
		return nil, fmt.Errorf("%w (%w)", err, sharing.ErrStale)
	}
	whom := g.holds
	if slices.ContainsFunc(g.mine, func(o Own) bool { return !slices.Contains(wanted, o.Place) }) {
		whom = g.allHolds
	}
	holds, err := whom(ctx)
	if err != nil {
		return nil, err
	}
	for _, o := range g.mine {
		if by := who(holds, o.GI); len(by) > 0 && !slices.Contains(wanted, o.Place) {
			return nil, fmt.Errorf("%s at %d is held by %s: %w", table.Name(o.Place.Profile), o.Place.Start,
				strings.Join(by, ", "), sharing.ErrConflict)
		}
	}
	return wanted, nil
}

// holds asks all who may know, but for the last.
func (g *state) holds(ctx context.Context) ([]mig.User, error) {
	return g.ask(ctx, g.opts.UserListers)
}

// allHolds asks the last, too: something is about to end.
func (g *state) allHolds(ctx context.Context) ([]mig.User, error) {
	return g.ask(ctx, slices.Concat(g.opts.UserListers, g.opts.Last))
}

func (g *state) ask(ctx context.Context, whom []UserLister) ([]mig.User, error) {
	var all []mig.User
	for _, h := range whom {
		list, err := h.Users(ctx, g.gpu.ID)
		if err != nil {
			return nil, fmt.Errorf("ask who holds mig instances: %w", errors.Join(err, sharing.ErrUnavailable))
		}
		for _, hold := range list {
			if hold.At != nil {
				i := slices.IndexFunc(g.mine, func(o Own) bool { return o.Place == *hold.At })
				if i < 0 {
					continue // not made yet
				}
				hold.GI = g.mine[i].GI
			}
			all = append(all, hold)
		}
	}
	return all, nil
}

func who(holds []mig.User, gi int) []string {
	var names []string
	for _, h := range holds {
		if h.GI == gi || h.GI == mig.AnyInstance {
			names = append(names, h.Who)
		}
	}
	return names
}

func (g *state) save() error {
	g.journal.BootID, g.journal.GPU, g.journal.PCI = g.opts.BootID, string(g.gpu.ID), g.gpu.PCI
	g.journal.Mine = toOwned(g.mine)
	data, err := encode(g.journal)
	if err != nil {
		return err
	}
	if err := g.opts.Store.Save(g.gpu.ID, data); err != nil {
		return &saveError{err}
	}
	return nil
}

// saveError is a journal that could not be written: no call may follow it.
type saveError struct{ err error }

func (s *saveError) Error() string   { return "write the mig journal: " + s.err.Error() }
func (s *saveError) Unwrap() []error { return []error{s.err, sharing.ErrUnavailable} }
