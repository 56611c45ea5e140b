// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/mig/exec"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
)

// Options say what a Manager works with. All but Around and Before are needed.
type Options struct {
	Log *slog.Logger
	// Driver and Store are the executor's, and BootID is the kernel's of this boot.
	Driver exec.Driver
	Store  exec.Store
	BootID string
	// Grants returns those on a GPU. After an error, Kerf destroys nothing and changes no mode.
	Grants func(gpu sharing.GPUID) ([]mig.Granted, error)
	// UserListers are all others who may say that an instance is held.
	UserListers []exec.UserLister
	// Last is exec.Options.Last.
	Last []exec.UserLister
	// Quiesce is exec.Options.Quiesce.
	Quiesce func(ctx context.Context, gpu sharing.GPUID, what exec.Touch) (resume func(), err error)
	// Pool returns the node's current pool.
	Pool func() config.Pool
	// ReadOnly keeps all GPUs as they are: what a pool wants beyond that waits, with a *sharing.ReadOnlyError.
	ReadOnly bool
	// Now is the clock.
	Now func() time.Time
	// Before is the Manager that had the GPUs until now, if one had: its clocks go on.
	Before *Manager
	// Around is called before each call to the driver that changes something, and what it returns after that call. Both
	// return at once.
	Around func(step string) (after func(err error))
}

const (
	// lookEvery is how often each GPU is looked at, even if nothing asks for it.
	lookEvery = 10 * time.Second
	// firstRetry is when a GPU in trouble is recovered again; the pause doubles up to mostRetry.
	firstRetry = time.Second
	mostRetry  = time.Minute
	// tickDeadline bounds what is done to one GPU at once, cutDeadline the making of one instance.
	tickDeadline   = 60 * time.Second
	createDeadline = 60 * time.Second
)

// Manager keeps the GPUs of one driver. It is made by New, and safe for concurrent use.
type Manager struct {
	*deps
	// pages are in the order in which the GPUs came; the list never changes.
	pages []*page
	wake  chan struct{}
}

// deps are what a Manager and its pages work with.
type deps struct {
	opt  Options
	exec *exec.Executor
	// closing is true once nothing new is begun, and stopped once nothing is written any more.
	closing, stopped atomic.Bool
}

// page is one GPU, and does all that is done to it.
type page struct {
	*deps
	gpu   exec.GPU
	facts sharing.GPU

	// work is held while the GPU is looked at or changed. It is taken before mu.
	work sync.Mutex
	// looked is when it last was; retry and pause are for a GPU in trouble. Work guards them.
	looked, retry time.Time
	pause         time.Duration
	// reset is true for a GPU that changes its mode with a reset. Work guards it, too.
	reset bool

	// mu guards what Candidate and View read.
	mu sync.Mutex
	seen
}

// seen is what is known of a GPU.
type seen struct {
	want Desired
	// table is nil for a GPU without MIG support, and before the first check.
	table  *mig.Table
	values *mig.Values
	// on is MIG mode, and turns means that demand may change it now or later. What keeps such a GPU as it is, is busy;
	// the last mode switch was at turned.
	on, turns bool
	busy      string
	turned    time.Time
	mine      []exec.Own
	foreign   []exec.Instance
	// trouble is why nothing is offered, waits why the GPU is not as it is wanted; both are for people.
	trouble, waits string
	// idle says since when an instance of ours has had no grant.
	idle map[mig.Place]time.Time
	// creating are the places that Ensure is creating now, with the owners.
	creating map[mig.Place]string
}

// New returns a Manager of the GPUs. Nothing is known of them before the first Tick.
func New(o Options, gpus []sharing.GPU) *Manager {
	m := &Manager{deps: &deps{opt: o}, wake: make(chan struct{}, 1)}
	driver := o.Driver
	if o.Around != nil {
		driver = &around{o.Driver, o.Around}
	}
	m.exec = exec.New(exec.Options{
		Driver: driver, Store: &brake{o.Store, &m.stopped}, BootID: o.BootID,
		UserListers: append(slices.Clone(o.UserListers), &grants{o.Grants}), Last: o.Last,
		Quiesce: o.Quiesce, Wait: wait,
	})
	for _, g := range gpus {
		p := &page{
			deps: m.deps,
			gpu:  exec.GPU{ID: g.UUID, PCI: g.PCI}, facts: g,
			seen: seen{trouble: "its MIG instances were not looked at yet", idle: map[mig.Place]time.Time{},
				creating: map[mig.Place]string{}},
		}
		p.goOn(o.Before)
		m.pages = append(m.pages, p)
	}
	m.opt.Before = nil // which has one itself
	return m
}

// grants are the ledger's holders.
type grants struct {
	of func(gpu sharing.GPUID) ([]mig.Granted, error)
}

// Users implements exec.UserLister.
func (c *grants) Users(_ context.Context, gpu sharing.GPUID) ([]mig.User, error) {
	list, err := c.of(gpu)
	if err != nil {
		return nil, err
	}
	holds := make([]mig.User, len(list))
	for i, one := range list {
		holds[i] = mig.User{GI: mig.AnyInstance, Who: one.Who}
		if !one.Instance.None() {
			holds[i].At = &mig.Place{Profile: one.Instance.ID, Start: one.Instance.Start}
		}
	}
	return holds, nil
}

// around calls begin before each call that changes something.
type around struct {
	exec.Driver
	begin func(step string) (after func(err error))
}

// SetMode implements exec.Driver, as do the others.
func (a *around) SetMode(ctx context.Context, gpu sharing.GPUID, on bool) (bool, error) {
	after := a.begin("set-mode")
	current, err := a.Driver.SetMode(ctx, gpu, on)
	after(err)
	return current, err //nolint:wrapcheck // the driver's own, here and below
}

func (a *around) CreateGI(ctx context.Context, gpu sharing.GPUID, at mig.Place) (int, error) {
	after := a.begin("create-gi")
	gi, err := a.Driver.CreateGI(ctx, gpu, at)
	after(err)
	return gi, err //nolint:wrapcheck // as above
}

func (a *around) DestroyGI(ctx context.Context, gpu sharing.GPUID, gi int) error {
	after := a.begin("destroy-gi")
	err := a.Driver.DestroyGI(ctx, gpu, gi)
	after(err)
	return err //nolint:wrapcheck // as above
}

func (a *around) CreateCI(ctx context.Context, gpu sharing.GPUID, gi int) (exec.Compute, error) {
	after := a.begin("create-ci")
	c, err := a.Driver.CreateCI(ctx, gpu, gi)
	after(err)
	return c, err //nolint:wrapcheck // as above
}

func (a *around) DestroyCI(ctx context.Context, gpu sharing.GPUID, gi, ci int) error {
	after := a.begin("destroy-ci")
	err := a.Driver.DestroyCI(ctx, gpu, gi, ci)
	after(err)
	return err //nolint:wrapcheck // as above
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err() //nolint:wrapcheck // the caller says what for
	}
}

func (m *Manager) page(gpu sharing.GPUID) *page {
	for _, p := range m.pages {
		if p.gpu.ID == gpu {
			return p
		}
	}
	return nil
}
