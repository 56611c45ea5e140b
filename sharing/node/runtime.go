// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"path"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf/throttle"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/lists"
	"github.com/kerf-gpu/kerf/sharing/node/burst"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
	"github.com/kerf-gpu/kerf/sharing/node/gpudriver"
	"github.com/kerf-gpu/kerf/sharing/node/guard"
	"github.com/kerf-gpu/kerf/sharing/node/handles"
	"github.com/kerf-gpu/kerf/sharing/node/health"
	"github.com/kerf-gpu/kerf/sharing/node/instances"
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
	// These have locks of their own, which are taken inside of the store.
	settings *applied.Settings
	endings  *health.Endings
	// changed wakes Watch.
	changed *changes
	// loans has a separate lock, which is taken before the lock of a grant's caps and before that of the store.
	loans   *burst.Manager
	sampler *observe.Sampler
}

// New makes a runtime that grants nothing yet.
func New(opt Options) *Runtime {
	if opt.Kernel == nil {
		opt.Kernel = lists.Node{CgroupOf: opt.Cgroups.OfProcess, DevRoot: opt.DevRoot}
	}
	r := &Runtime{opt: opt, changed: newChanges()}
	r.endings = health.NewEndings(r.changed.announce)
	r.settings = applied.New(opt.Log, settingsNode{r}, r.changed.announce, opt.Config, opt.Pool)
	r.sampler = &observe.Sampler{
		Lists: lists.New(opt.Kernel), View: views{r}.observe, Changes: r.changed.seen,
		Daemons: path.Join(opt.Cgroups.Mount, DaemonsOf(opt.Parent)),
		Managed: func(grants []ledger.Grant) map[sharing.GPURef]sharing.Bytes {
			return r.Libkerf.Managed(capsOf(grants))
		},
	}
	r.Grants = lifecycle.New(r.core())
	r.Guard = guard.New(guardNode{r}.options())
	r.Modes = mode.New(opt.Log, modeNode{r}, opt.NewID)
	r.Allocatable, r.Took = r.settings.Allocatable, r.Modes.TookInventory
	r.Reserver.Settings, r.Place, r.Unplaced = r.settings, r.placing, &unplaced.Pods{}
	r.NewID, r.Reserver.NoMPSForPods = opt.NewID, opt.NoMPSForPods
	r.loans = &burst.Manager{Log: opt.Log, Node: r.Resizer, Changed: r.changed.wait, Announce: r.changed.announce,
		Now: time.Now}
	r.Recaller, r.Reserver.BurstMemory = r.loans, r.loans
	r.Conditions.Set(conditions.Driver, "no driver has been found yet")
	return r
}

// core is what the parts of the life cycle share.
func (r *Runtime) core() lifecycle.Core {
	opt := r.opt
	set := conditions.New(r.changed.announce)
	return lifecycle.Core{
		Host: lifecycle.Host{
			Cgroups: opt.Cgroups, Parent: opt.Parent, DevRoot: opt.DevRoot, CapsRoot: opt.CapsRoot,
			Record: opt.RecordPath,
			MPS:    opt.MPS, Failpoints: opt.Failpoints,
		},
		Reports: lifecycle.Reports{
			Log: opt.Log, Observer: opt.Observer, Notify: &notify.Notifier{Audit: opt.Audit, Observer: opt.Observer},
			Conditions: set,
			Announce:   r.changed.announce,
		},
		Store: store.New(store.Options{
			Log: opt.Log, Conditions: set, Path: opt.RecordPath, BootID: opt.BootID,
			At: func(point string) error { return r.Failpoints.Eval(point) },
		}),
		Handles: &handles.Handles{}, Driver: &gpudriver.Current{}, Lists: r.sampler.Lists,
		Libkerf: libkerf.New(libkerf.Options{Paths: opt.Client, Log: opt.Log, Lists: r.sampler.Lists,
			Rules: countedNode{r}.rules}),
		Instances: instances.New(opt.Log, instanceNode{r}, instances.Files{Root: cmp.Or(opt.CapsRoot, opt.DevRoot)}),
		Watcher:   cgroup.NewWatcher(watchPoll, opt.Log), Recovery: &recovery.State{},
	}
}

// Run reconciles until ctx ends, then joins its watches. Attachments stay as they are.
func (r *Runtime) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.Releaser.Run(ctx) })
	g.Go(func() error { return r.Caps.Run(ctx) })
	g.Go(func() error { return r.Guard.Run(ctx) })
	g.Go(func() error {
		return (&health.Runner{
			Log: r.Log, Table: r.Health, Endings: r.endings, Notify: r.Notify, Cgroups: r.opt.Cgroups,
			View: views{r}.health, Changed: r.changed.wait,
		}).Run(ctx)
	})
	g.Go(func() error { return newMeter(r).Run(ctx) })
	g.Go(func() error { return r.loans.Run(ctx) })
	g.Go(func() error { return newCounters(r).Run(ctx) })
	g.Go(func() error { return r.Instances.Run(ctx) })
	g.Go(func() error { return r.Modes.Run(ctx) })
	g.Go(func() error {
		return (&throttle.Throttle{Source: r.Libkerf.NewPacing(timeHost{r}), Log: r.Log}).Run(ctx)
	})
	err := g.Wait()
	r.Libkerf.Clean(ctx)
	r.Store.Read(func(l store.Reader) {
		for id := range r.Handles.Owners() {
			if g, _ := l.Get(id); g.Work == ledger.NoWork { // an activation in progress goes on, and closes it itself
				r.Handles.LetGo(id)
			}
		}
	})
	return err
}

// Changed returns a channel that is closed at the next change of the node's state.
func (r *Runtime) Changed() <-chan struct{} { return r.changed.wait() }

// ActivateContainer is that of lifecycle.Activator. The note of a call reports the container's creation first, as
// ContainerMade does: CRI-O runs the hook before it reports the creation through NRI.
func (r *Runtime) ActivateContainer(ctx context.Context, call sharing.HookCall) error {
	if call.Note != "" {
		r.ContainerMade(call.ContainerID, call.Note)
	}
	return r.Grants.ActivateContainer(ctx, call)
}
