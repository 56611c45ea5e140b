// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"path"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/internal/process"
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
	opt Options
	log *slog.Logger
	// These have locks of their own, which are taken after mu.
	settings   *applied.Settings
	conditions *conditions.Set
	health     *health.Table
	endings    *health.Endings
	// libkerf has a lock of its own, which is taken after mu.
	libkerf *libkerf.Backend
	// guard has a lock of its own, which is taken after mu.
	guard  *guard.Guard
	notify *notify.Notifier

	// changed wakes Watch; kick and verifyNow wake the two loops (capacity 1: never lost, never queued).
	changed         *changes
	kick, verifyNow chan struct{}
	// instances creates the MIG instances of grants.
	instances *instances.Reconciler
	// modes switches the MIG mode of GPUs on demand.
	modes *mode.Switcher
	// capGate is where caps are put on cgroups.
	capGate *gate

	// mu guards all below. It is never held over a call into the driver.
	mu     sync.Mutex
	ledger *ledger.Ledger
	// held has one entry for each claim in the ledger.
	held map[ledger.ClaimID]*holding
	// driver is the one that answers now. It is changed with the lock held.
	driver gpudriver.Current
	// recovery is what was found of the grants before the start.
	recovery recovery.State

	// unplaced are the pods without grants.
	unplaced unplaced.Pods

	// store reads and changes the ledger, and keeps it on disk.
	store *store.Store

	// loans has a lock of its own, which is taken before a holding's capping and before mu.
	loans *lending.Lender

	watcher *cgroup.Watcher
	sampler *observe.Sampler
}

// holding is what the runtime knows of a claim beside the ledger.
type holding struct {
	// owner is the claiming process; nil once it is activated, when the cgroup tells all, and for claims found at
	// restart.
	owner *process.Handle
	// capping is held while the caps of a lease that runs are read and changed, so that of two who do it the
	// second sees what the first did. It is taken before the runtime's lock, never after.
	capping sync.Mutex
	// started is what the processes of its lease were started with, where MPS holds it and its size was changed since.
	started startedWith
}

// letGo closes the handle of the claiming process; it needs the lock.
func (h *holding) letGo() {
	if h.owner != nil {
		h.owner.Close()
		h.owner = nil
	}
}

// groupOf is the cgroup of an attachment.
func (r *Runtime) groupOf(a ledger.Attachment) cgroup.Group {
	return r.opt.Cgroups.Group(a.Cgroup, a.Inode)
}

// New makes a runtime that grants nothing yet.
func New(opt Options) *Runtime {
	if opt.Kernel == nil {
		opt.Kernel = lists.Node{CgroupOf: opt.Cgroups.OfProcess, DevRoot: opt.DevRoot}
	}
	r := &Runtime{
		health: health.NewTable(), notify: &notify.Notifier{Audit: opt.Audit, Observer: opt.Observer},
		opt: opt, log: opt.Log,
		watcher: cgroup.NewWatcher(watchPoll, opt.Log),
		changed: newChanges(), kick: make(chan struct{}, 1), verifyNow: make(chan struct{}, 1), capGate: newGate(gateWidth, gateTime),
		ledger: ledger.New(), held: map[ledger.ClaimID]*holding{},
	}
	r.conditions, r.endings = conditions.New(r.changed.announce), health.NewEndings(r.changed.announce)
	r.settings = applied.New(opt.Log, settingsNode{r}, r.changed.announce, opt.Config, opt.Pool)
	r.conditions.Set(conditions.Driver, "no driver has been found yet")
	r.instances = instances.New(opt.Log, instanceNode{r}, instances.Files{Root: cmp.Or(opt.CapsRoot, opt.DevRoot)})
	r.modes = mode.New(opt.Log, modeNode{r}, opt.NewID)
	r.sampler = &observe.Sampler{
		Lists: lists.New(opt.Kernel), View: r.observeView, Changes: r.changed.seen, Daemons: path.Join(opt.Cgroups.Mount, DaemonsOf(opt.Parent)),
		Managed: func(grants []ledger.Grant) map[sharing.GPUID]sharing.Bytes { return r.libkerf.Managed(capsOf(grants)) },
	}
	r.guard = guard.New(r.guardOptions())
	r.libkerf = libkerf.New(libkerf.Options{Paths: opt.Client, Log: opt.Log, Lists: r.sampler.Lists, Rules: r.libkerfRules})
	r.loans = &lending.Lender{Log: opt.Log, Node: lendNode{r}, Changed: r.changed.wait, Announce: r.changed.announce, Now: time.Now}
	r.store = store.New(store.Options{
		Log: opt.Log, Conditions: r.conditions, Path: opt.RecordPath, BootID: opt.BootID,
		At: func(point string) error { return r.opt.Failpoints.Eval(point) },
	}, &r.mu, r.ledger)
	return r
}

// Run reconciles until ctx ends, then joins its watches. Leases stay as they are.
func (r *Runtime) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.reconcileLoop(ctx) })
	g.Go(func() error { return r.verifyLoop(ctx) })
	g.Go(func() error { return r.guard.Run(ctx) })
	g.Go(func() error {
		return (&health.Runner{
			Log: r.log, Table: r.health, Endings: r.endings, Notify: r.notify, Cgroups: r.opt.Cgroups, View: r.healthView, Changed: r.changed.wait,
		}).Run(ctx)
	})
	g.Go(func() error { return newMeter(r).Run(ctx) })
	g.Go(func() error { return r.loans.Run(ctx) })
	g.Go(func() error { return newCounters(r).Run(ctx) })
	g.Go(func() error { return r.instances.Run(ctx) })
	g.Go(func() error { return r.modes.Run(ctx) })
	g.Go(func() error { return (&pace.Pacer{Source: r.libkerf.NewPacing(timeHost{r}), Log: r.log}).Run(ctx) })
	g.Go(func() error { return r.watcher.Run(ctx, func(cgroup.Group) { r.wake() }) })
	err := g.Wait()
	r.libkerf.Clean(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, h := range r.held {
		if g, _ := r.ledger.Get(id); g.Work == ledger.NoWork { // an activation in progress goes on, and closes it itself
			h.letGo()
		}
	}
	return err
}

// Attach takes a driver that answers into use, or replaces the one in use. Caps of running leases are
// verified against it before anything is granted.
func (r *Runtime) Attach(ctx context.Context, att gpudriver.Attached) error {
	r.mu.Lock()
	if err := r.ledger.SetInventory(r.settings.Allocatable(att.GPUs)); err != nil {
		r.mu.Unlock()
		return fmt.Errorf("take in inventory: %w", err)
	}
	for _, g := range att.GPUs {
		r.observe(g.UUID, health.State{Health: g.Health, Reason: g.HealthReason})
	}
	r.driver.Set(&att)
	r.sampler.Lists.Found(att.GPUs)
	r.modes.TookInventory(att.GPUs, att.Levels)
	r.conditions.Set(conditions.Driver, "the caps of running grants are being verified")
	r.conditions.Set(conditions.NoGPU, "")
	orphans := r.recovery.TakeOrphans()
	for _, s := range att.LeftOut {
		r.log.Warn("device left out of the inventory", "reason", s)
	}
	r.conditions.Set(conditions.LeftOut, joinSentences(att.LeftOut))
	r.mu.Unlock()

	r.recover(ctx, orphans)
	r.verifyAll(ctx)

	r.mu.Lock()
	r.driver.Settled()
	r.conditions.Set(conditions.Driver, "")
	if len(att.GPUs) == 0 {
		r.conditions.Set(conditions.NoGPU, "the driver shows no GPU")
	}
	r.mu.Unlock()
	r.changed.announce()
	return ctx.Err()
}

// Detach tells that no driver answers any more, and why. Grants stay; nothing new is granted.
func (r *Runtime) Detach(reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.conditions.Set(conditions.Driver, reason) && r.driver.Get() == nil {
		return
	}
	r.driver.Set(nil)
	r.conditions.Set(conditions.NoGPU, "")
	for _, v := range r.ledger.GPUs() {
		r.observe(v.GPU.UUID, health.State{Health: sharing.HealthUnknown, Reason: reason})
	}
	r.changed.announce()
}

// SetCordons tells which GPUs are to take nothing new, and why, in the place of what was told before. Claims on them stay,
// and their containers start again.
func (r *Runtime) SetCordons(why map[sharing.GPUID]string) {
	r.mu.Lock()
	r.ledger.SetCordons(why)
	r.mu.Unlock()
	r.changed.announce()
}

// Amend changes what is known of the driver in use: its GPUs, and what each can give. Grants stay as they are.
func (r *Runtime) Amend(change func(*gpudriver.Attached)) {
	r.mu.Lock()
	if r.driver.Amend(change) {
		settingsNode{r}.takeInventory()
	}
	r.mu.Unlock()
	r.verifySoon()
	r.changed.announce()
}

// Conditions are what stops grants, and warnings.
func (r *Runtime) Conditions() *conditions.Set { return r.conditions }

// Notify reaches those who use grants. Set its functions before Run.
func (r *Runtime) Notify() *notify.Notifier { return r.notify }

// Changed returns a channel that is closed at the next change of the node's state.
func (r *Runtime) Changed() <-chan struct{} { return r.changed.wait() }

// notReady lists every reason why no claim is taken; it needs the lock.
func (r *Runtime) notReady() []string {
	return append(r.recovery.Missing(), r.conditions.Sentences(conditions.StopsGrants)...)
}

// unsettled lists every reason why grants that exist cannot be served either; it needs the lock.
func (r *Runtime) unsettled() []string {
	return append(r.recovery.Missing(), r.conditions.Unserved()...)
}

// ready returns nil or an error that wraps ErrUnavailable and names every reason; it needs the lock.
func (r *Runtime) ready() error { return unready(r.notReady()) }

func unready(why []string) error {
	if len(why) > 0 {
		return fmt.Errorf("agent is not ready: %s: %w", joinSentences(why), sharing.ErrUnavailable)
	}
	return nil
}

// wake asks for a reconcile now.
func (r *Runtime) wake() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

func (r *Runtime) reconcileLoop(ctx context.Context) error {
	t := time.NewTicker(reconcileEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.kick:
		case <-t.C:
		}
		r.Reconcile(ctx)
		_ = r.store.Settle() // the condition has the error
		// Each pass looks at every lease; containers that start or end together wake it many times.
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(reconcileGap):
		}
	}
}

// NotReady lists every reason why no claim is taken; it is empty when the node is ready.
func (r *Runtime) NotReady() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.notReady()
}
