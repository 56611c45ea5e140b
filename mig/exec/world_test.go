// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/mig/plan"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/machine"
)

const testGPU = sharing.GPUID("GPU-01234567-89ab-cdef-0123-456789abcdef")

// killed is what a process that is killed panics with: no code of it runs any more but what unlocks.
type killed struct{}

// world is a GPU with its driver, a disk, and who holds what: all that outlives a process.
type world struct {
	last  listing
	noMIG bool // the GPU cannot do it
	t     testing.TB
	table *mig.Table

	boot    string
	mode    Mode
	have    []Instance
	uuids   int
	disk    []byte
	holds   []mig.User
	writes  int // calls that change something
	noWho   error
	refuse  map[plan.Op]error // what calls answer instead of doing it
	refused map[plan.Op]int   // how often still; absent: always
	diskErr error
	// resets has the call that sets the mode of a GPU which takes a reset for it make that, as outside of virtual
	// machines.
	resets bool
	// refuseMode has the driver refuse each mode that is set, and refuseBack only one that the GPU has.
	refuseMode, refuseBack bool
	// ending is true while a call is under way that destroys something.
	ending bool
	// touched is what Kerf let go of, each time.
	touched []Touch

	// events are calls to the driver and to the disk. The process is killed at one of them, before or after its effect.
	events, killAt int
	after          bool
	// meanwhile happens before the event of that number.
	meanwhile   func()
	meanwhileAt int
	// ctx is whose end ends calls to the driver, too; nil: the test's.
	ctx context.Context
}

func newWorld(t testing.TB, name string) *world {
	t.Helper()
	m, err := machine.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	var list []mig.Profile
	for _, p := range m.GPUs[0].Model.Profiles {
		list = append(list, mig.Profile{
			ID: int(p.ID), Name: p.Name, Compute: p.Slices, Memory: p.Memory, SMs: int(p.SMs), MaxInstances: p.Max,
			Size: p.Size, Starts: p.Starts,
			Engines: mig.Engines{Decoders: int(p.Decoders), Encoders: int(p.Encoders), JPEGs: int(p.JPEGs),
				OFAs: int(p.OFAs)},
		})
	}
	table, err := mig.NewTable(list)
	if err != nil {
		t.Fatal(err)
	}
	return &world{
		t: t, table: table, boot: "boot 1", mode: Mode{Current: true, Pending: true,
			NeedsReset: m.GPUs[0].Model.CCMajor < 9},
		refuse: map[plan.Op]error{}, refused: map[plan.Op]int{},
	}
}

// listing is a holder that is asked last.
type listing struct {
	holds []mig.User
	asked int
	err   error
}

func (l *listing) Users(context.Context, sharing.GPUID) ([]mig.User, error) {
	l.asked++
	return l.holds, l.err
}

// start is a new process.
func (w *world) start() *Executor {
	return New(Options{
		Driver: w, Store: w, BootID: w.boot, UserListers: []UserLister{w}, Last: []UserLister{&w.last},
		Quiesce: func(_ context.Context, _ sharing.GPUID, what Touch) (func(), error) {
			w.touched = append(w.touched, what)
			return func() {}, nil
		},
		Wait: func(ctx context.Context, _ time.Duration) error { return ctx.Err() },
	})
}

func (w *world) gpu() GPU { return GPU{testGPU, "00000000:17:00.0"} }

// run calls fn in a process that is killed at an event, if there are so many; it returns whether it was.
func (w *world) run(killAt int, after bool, fn func()) (wasKilled bool) {
	w.events, w.killAt, w.after = 0, killAt, after
	defer func() {
		w.killAt = 0
		if r := recover(); r != nil {
			if _, ok := r.(killed); !ok {
				panic(r)
			}
			wasKilled = true
		}
	}()
	fn()
	return false
}

func (w *world) event(effect func() error) error {
	w.events++
	if w.meanwhile != nil && w.events == w.meanwhileAt {
		w.meanwhile()
	}
	if w.events == w.killAt && !w.after {
		panic(killed{})
	}
	err := effect()
	if w.events == w.killAt {
		panic(killed{})
	}
	return err
}

// change is an event that the test can make the driver refuse.
func (w *world) change(ctx context.Context, op plan.Op, effect func() error) error {
	w.ending = op == plan.DestroyCI || op == plan.DestroyGI
	defer func() { w.ending = false }()
	return w.event(func() error {
		if ctx.Err() != nil {
			return fmt.Errorf("%w (%w)", ctx.Err(), sharing.ErrUnavailable)
		}
		w.writes++
		if err := w.refuse[op]; err != nil {
			left, counted := w.refused[op]
			if !counted || left > 0 {
				w.refused[op] = left - 1
				if !counted {
					delete(w.refused, op)
				}
				return err
			}
		}
		return effect()
	})
}

func (w *world) Load(sharing.GPUID) (data []byte, err error) {
	err = w.event(func() error { data = slices.Clone(w.disk); return nil })
	return data, err
}

func (w *world) Save(_ sharing.GPUID, data []byte) error {
	return w.event(func() error {
		if w.diskErr != nil {
			return w.diskErr
		}
		w.disk = slices.Clone(data)
		return nil
	})
}

func (w *world) Users(context.Context, sharing.GPUID) ([]mig.User, error) { return w.holds, w.noWho }

func (w *world) Mode(context.Context, sharing.GPUID) (m Mode, err error) {
	err = w.event(func() error { m = w.mode; return nil })
	return m, err
}

func (w *world) SetMode(_ context.Context, _ sharing.GPUID, on bool) (current bool, err error) {
	err = w.event(func() error {
		w.writes++
		if w.refuseMode || w.refuseBack && on == w.mode.Current {
			return fmt.Errorf("in use: %w", sharing.ErrUnavailable)
		}
		w.mode.Pending = on
		if !w.mode.NeedsReset || w.resets {
			w.mode.Current = on
		}
		current = w.mode.Current == on
		return nil
	})
	return current, err
}

func (w *world) Table(context.Context, sharing.GPUID) (*mig.Table, error) { return w.table, nil }

func (w *world) Instances(context.Context, sharing.GPUID) (list []Instance, err error) {
	if w.noMIG {
		return nil, sharing.ErrUnsupported
	}
	err = w.event(func() error {
		for _, in := range w.have {
			in.CIs = slices.Clone(in.CIs)
			list = append(list, in)
		}
		return nil
	})
	return list, err
}

func (w *world) CreateGI(ctx context.Context, _ sharing.GPUID, at mig.Place) (gi int, err error) {
	err = w.change(ctx, plan.CreateGI, func() error { gi, err = w.create(at); return err })
	return gi, err
}

// create creates an instance with the lowest id that is free, as drivers do.
func (w *world) create(at mig.Place) (int, error) {
	if !w.mode.Current {
		return 0, fmt.Errorf("no MIG mode: %w", sharing.ErrUnsupported)
	}
	all := []mig.Place{at}
	for _, in := range w.have {
		all = append(all, in.Place)
	}
	if _, err := w.table.Occupy(all); err != nil {
		return 0, err
	}
	gi := 1
	for slices.ContainsFunc(w.have, func(in Instance) bool { return in.GI == gi }) {
		gi++
	}
	w.have = append(w.have, Instance{Place: at, GI: gi})
	slices.SortFunc(w.have, func(a, b Instance) int { return cmp.Compare(a.GI, b.GI) })
	return gi, nil
}

func (w *world) find(gi int) (*Instance, error) {
	i := slices.IndexFunc(w.have, func(in Instance) bool { return in.GI == gi })
	if i < 0 {
		return nil, fmt.Errorf("no GPU instance %d: %w", gi, sharing.ErrNotFound)
	}
	return &w.have[i], nil
}

func (w *world) DestroyGI(ctx context.Context, _ sharing.GPUID, gi int) error {
	return w.change(ctx, plan.DestroyGI, func() error { return w.uncut(gi) })
}

func (w *world) uncut(gi int) error {
	in, err := w.find(gi)
	if err != nil {
		return err
	}
	if len(in.CIs) > 0 {
		return fmt.Errorf("GPU instance %d is in use: %w", gi, sharing.ErrUnavailable)
	}
	w.have = slices.DeleteFunc(w.have, func(in Instance) bool { return in.GI == gi })
	return nil
}

func (w *world) CreateCI(ctx context.Context, _ sharing.GPUID, gi int) (c Compute, err error) {
	err = w.change(ctx, plan.CreateCI, func() error { c, err = w.compute(gi); return err })
	return c, err
}

func (w *world) compute(gi int) (Compute, error) {
	in, err := w.find(gi)
	if err != nil {
		return Compute{}, err
	}
	if len(in.CIs) > 0 {
		return Compute{}, fmt.Errorf("GPU instance %d has one: %w", gi, sharing.ErrExhausted)
	}
	w.uuids++
	in.CIs = []Compute{{0, true, fmt.Sprintf("MIG-%d", w.uuids)}}
	return in.CIs[0], nil
}

func (w *world) DestroyCI(ctx context.Context, _ sharing.GPUID, gi, ci int) error {
	return w.change(ctx, plan.DestroyCI, func() error {
		in, err := w.find(gi)
		if err != nil {
			return err
		}
		if len(in.CIs) == 0 || in.CIs[0].CI != ci {
			return fmt.Errorf("no compute instance %d: %w", ci, sharing.ErrNotFound)
		}
		in.CIs = nil
		return nil
	})
}

// byHand creates an unmanaged instance.
func (w *world) byHand(at mig.Place) Instance {
	w.t.Helper()
	gi, err := w.create(at)
	if err == nil {
		_, err = w.compute(gi)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	in, _ := w.find(gi)
	return *in
}

// reboot takes all instances; only GPUs before Hopper keep the mode.
func (w *world) reboot(boot string) {
	w.boot, w.have, w.holds = boot, nil, nil
	w.mode.Current = w.mode.Pending && w.mode.NeedsReset
	w.mode.Pending = w.mode.Current
}

// ready is a process that has recovered.
func (w *world) ready() *Executor {
	w.t.Helper()
	e := w.start()
	if err := e.Recover(w.t.Context(), w.gpu(), false); err != nil {
		w.t.Fatal(err)
	}
	return e
}

// apply does the plan for a layout of these profiles, by name.
func (w *world) apply(e *Executor, names ...string) ([]Own, error) {
	have, err := e.Observe(w.t.Context(), w.gpu())
	if err != nil {
		return nil, err
	}
	ask := plan.Request{Table: w.table, Have: have, Exact: true}
	for _, n := range names {
		p, err := w.table.Lookup("profile", n)
		if err != nil {
			w.t.Fatal(err)
		}
		ask.Wishes = append(ask.Wishes, plan.Wish{Profile: p.ID, Start: plan.Any})
	}
	p, err := plan.Make(ask)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx := w.ctx
	if ctx == nil {
		ctx = w.t.Context()
	}
	return e.Apply(ctx, w.gpu(), p.Steps)
}

// ours are the places that a recovered process calls Kerf's, sorted. It is an error if one has no compute instance, or
// if the driver has an instance that is neither Kerf's nor among the foreign ones.
func (w *world) ours(e *Executor, foreign ...Instance) []mig.Place {
	w.t.Helper()
	have, err := e.Observe(w.t.Context(), w.gpu())
	if err != nil {
		w.t.Fatal(err)
	}
	list := []mig.Place{}
	for _, in := range have {
		if in.Managed {
			if !in.Ready {
				w.t.Fatalf("%+v is half made", in)
			}
			list = append(list, in.Place)
		}
	}
	if len(have) != len(w.have) || len(have) != len(list)+len(foreign) {
		w.t.Fatalf("the driver has %+v, Kerf %v, others %+v", w.have, list, foreign)
	}
	for _, f := range foreign {
		in, err := w.find(f.GI)
		if err != nil || in.Place != f.Place || len(in.CIs) != 1 || in.CIs[0] != f.CIs[0] {
			w.t.Fatalf("the foreign instance %+v became %+v, %v", f, in, err)
		}
	}
	return sorted(list)
}

func sorted(list []mig.Place) []mig.Place {
	slices.SortFunc(list, func(a, b mig.Place) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Profile, b.Profile))
	})
	return list
}

func wantErr(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}
