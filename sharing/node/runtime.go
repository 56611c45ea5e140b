// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"path"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf/pace"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/lists"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
	"github.com/kerf-gpu/kerf/sharing/node/gpudriver"
	"github.com/kerf-gpu/kerf/sharing/node/guard"
	"github.com/kerf-gpu/kerf/sharing/node/health"
	"github.com/kerf-gpu/kerf/sharing/node/instances"
	"github.com/kerf-gpu/kerf/sharing/node/lending"
	"github.com/kerf-gpu/kerf/sharing/node/lifecycle"
	"github.com/kerf-gpu/kerf/sharing/node/mode"
	"github.com/kerf-gpu/kerf/sharing/node/notify"
	"github.com/kerf-gpu/kerf/sharing/node/observe"
	"github.com/kerf-gpu/kerf/sharing/node/recovery"
	"github.com/kerf-gpu/kerf/sharing/node/settings/applied"
	"github.com/kerf-gpu/kerf/sharing/node/store"
	"github.com/kerf-gpu/kerf/sharing/node/unplaced"
)

// Runtime is one node's state and its transitions. Make it with New, then Restore, then Run.
type Runtime struct {
	*lifecycle.Grants

	opt Options
	// These have locks of their own, which are taken after mu.
	settings   *applied.Settings
	conditions *conditions.Set
	endings    *health.Endings
	notify     *notify.Notifier

	// changed wakes Watch.
	changed *changes
	// instances creates the MIG instances of grants.
	instances *instances.Reconciler
	// modes switches the MIG mode of GPUs on demand.
	modes *mode.Switcher

	// mu guards all below. It is never held over a call into the driver.
	mu     sync.Mutex
	ledger *ledger.Ledger
	// unplaced are the pods without grants.
	unplaced unplaced.Pods

	// loans has a lock of its own, which is taken before a holding's capping and before mu.
	loans *lending.Lender

	sampler *observe.Sampler
}

// New makes a runtime that grants nothing yet.
func New(opt Options) *Runtime {
	if opt.Kernel == nil {
		opt.Kernel = lists.Node{CgroupOf: opt.Cgroups.OfProcess, DevRoot: opt.DevRoot}
	}
	r := &Runtime{
		notify: &notify.Notifier{Audit: opt.Audit, Observer: opt.Observer},
		opt:    opt, changed: newChanges(), ledger: ledger.New(),
	}
	r.conditions, r.endings = conditions.New(r.changed.announce), health.NewEndings(r.changed.announce)
	r.settings = applied.New(opt.Log, settingsNode{r}, r.changed.announce, opt.Config, opt.Pool)
	r.conditions.Set(conditions.Driver, "no driver has been found yet")
	r.instances = instances.New(opt.Log, instanceNode{r}, instances.Files{Root: cmp.Or(opt.CapsRoot, opt.DevRoot)})
	r.modes = mode.New(opt.Log, modeNode{r}, opt.NewID)
	r.sampler = &observe.Sampler{
		Lists: lists.New(opt.Kernel), View: r.observeView, Changes: r.changed.seen, Daemons: path.Join(opt.Cgroups.Mount, DaemonsOf(opt.Parent)),
		Managed: func(grants []ledger.Grant) map[sharing.GPUID]sharing.Bytes { return r.Libkerf.Managed(capsOf(grants)) },
	}
	r.Grants = lifecycle.New(r.core(), &r.mu, r.ledger)
	r.Allocatable, r.Took = r.settings.Allocatable, r.modes.TookInventory
	r.Reserver.Settings, r.Place, r.Modes, r.Unplaced = r.settings, r.placing, r.modes, &r.unplaced
	r.NewID, r.Reserver.NoMPSForPods = opt.NewID, opt.NoMPSForPods
	r.loans = &lending.Lender{Log: opt.Log, Node: r.Resizer, Changed: r.changed.wait, Announce: r.changed.announce, Now: time.Now}
	r.Recaller, r.Reserver.Loans = r.loans, r.loans
	return r
}

// core is what the parts of the life cycle share.
func (r *Runtime) core() lifecycle.Core {
	return lifecycle.Core{
		Host: lifecycle.Host{
			Cgroups: r.opt.Cgroups, Parent: r.opt.Parent, DevRoot: r.opt.DevRoot, CapsRoot: r.opt.CapsRoot, Record: r.opt.RecordPath,
			MPS: r.opt.MPS, Failpoints: r.opt.Failpoints,
		},
		Reports: lifecycle.Reports{
			Log: r.opt.Log, Observer: r.opt.Observer, Notify: r.notify, Conditions: r.conditions, Announce: r.changed.announce,
		},
		Store: store.New(store.Options{
			Log: r.opt.Log, Conditions: r.conditions, Path: r.opt.RecordPath, BootID: r.opt.BootID,
			At: func(point string) error { return r.Failpoints.Eval(point) },
		}, &r.mu, r.ledger),
		Handles: &lifecycle.Handles{}, Driver: &gpudriver.Current{}, Lists: r.sampler.Lists, Guard: guard.New(r.guardOptions()),
		Libkerf:   libkerf.New(libkerf.Options{Paths: r.opt.Client, Log: r.opt.Log, Lists: r.sampler.Lists, Rules: r.libkerfRules}),
		Instances: r.instances, Watcher: cgroup.NewWatcher(watchPoll, r.opt.Log), Recovery: &recovery.State{},
	}
}

// Run reconciles until ctx ends, then joins its watches. Leases stay as they are.
func (r *Runtime) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.Releaser.Run(ctx) })
	g.Go(func() error { return r.Caps.Run(ctx) })
	g.Go(func() error { return r.Guard.Run(ctx) })
	g.Go(func() error {
		return (&health.Runner{
			Log: r.Log, Table: r.Health, Endings: r.endings, Notify: r.notify, Cgroups: r.opt.Cgroups, View: r.healthView, Changed: r.changed.wait,
		}).Run(ctx)
	})
	g.Go(func() error { return newMeter(r).Run(ctx) })
	g.Go(func() error { return r.loans.Run(ctx) })
	g.Go(func() error { return newCounters(r).Run(ctx) })
	g.Go(func() error { return r.instances.Run(ctx) })
	g.Go(func() error { return r.modes.Run(ctx) })
	g.Go(func() error { return (&pace.Pacer{Source: r.Libkerf.NewPacing(timeHost{r}), Log: r.Log}).Run(ctx) })
	g.Go(func() error { return r.Watcher.Run(ctx, func(cgroup.Group) { r.Wake() }) })
	err := g.Wait()
	r.Libkerf.Clean(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range r.Handles.Owners() {
		if g, _ := r.ledger.Get(id); g.Work == ledger.NoWork { // an activation in progress goes on, and closes it itself
			r.Handles.LetGo(id)
		}
	}
	return err
}

// healthView is what the runner of the health sees.
func (r *Runtime) healthView() health.View {
	r.mu.Lock()
	defer r.mu.Unlock()
	return health.View{Rule: r.settings.Pool().Health, GPUs: r.ledger.GPUs(), Grants: r.ledger.Grants()}
}

// Conditions are what stops grants, and warnings.
func (r *Runtime) Conditions() *conditions.Set { return r.conditions }

// Notify reaches those who use grants. Set its functions before Run.
func (r *Runtime) Notify() *notify.Notifier { return r.notify }

// Changed returns a channel that is closed at the next change of the node's state.
func (r *Runtime) Changed() <-chan struct{} { return r.changed.wait() }

// NotReady lists every reason why no claim is taken; it is empty when the node is ready.
func (r *Runtime) NotReady() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Core.NotReady()
}
