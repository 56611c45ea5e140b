// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package deviceplugin advertises a node's GPUs to kubelet (device plugin API v1beta1). For each admitted container
// it returns the CDI names that keep the container from starting before its cap is enforced.
//
// It promises:
//   - An id is a unit and tied to no GPU, so any ids that kubelet picks are right. Counts follow the hardware
//     and the configuration alone; nothing is withdrawn because something else was allocated.
//   - When a GPU is lost, first the ids of containers on that GPU turn unhealthy, then free ones, up to what was
//     lost. An id that is held by a container on a sound GPU never does.
//   - Allocate is a function of resource, count and the NUMA nodes of the ids: no disk, driver, API server or
//     lock that something slow holds. The same ids in any order give the same answer.
//   - Kubelet may restart, or the plugin's sockets may vanish, at any time. Within a second of kubelet listening again
//     each resource is registered again, with a new socket name.
//   - Nothing is registered before the first inventory.
//
// It does not say which container gets which GPU: kubelet's API names no container. It does not reject double use
// either: a retry and a second pod are equal here. The container's hook rejects it.
package deviceplugin

import (
	"context"
	"crypto/rand"
	"log/slog"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kerf-gpu/kerf/internal/serve"
	"github.com/kerf-gpu/kerf/sharing"
)

// PodResources lists the ids of Kerf's resources by container, as kubelet sees it.
type PodResources interface {
	// List returns, per container, the resource's name ("kerf.dev/gpu-percent") and its ids. The keys have no PodUID.
	// After an error nothing is known: a partial list is an error too. List ends when ctx does. Ids of a pod that the
	// lister does not know yet count as free until the next call. SetOwners reports such a pod once it has a grant.
	//
	// Do not use kubelet's own List while pods come: it can forget the ids of a pod that kubelet admits at that moment.
	// It counts the pods before, and removes the rest after (UpdateAllocatedDevices of its device manager, up to 1.37
	// at least). That pod then never starts.
	List(ctx context.Context) (map[sharing.ContainerRef]map[string][]string, error)
}

// Options are what a plugin needs.
type Options struct {
	// Dir is kubelet's folder of device plugins, with kubelet.sock in it. It need not exist yet.
	Dir string
	Log *slog.Logger
	// ReadinessGate is what every start of a container waits for: nil when containers can start, else an error that
	// says what is in the way. It may wait or answer at once, and must return soon after ctx ends. It is called
	// many times, also at once. A nil ReadinessGate is always open.
	ReadinessGate func(ctx context.Context) error
	//
	// MIGReadinessGate waits for pending MIG instances. Starts of containers that may have one (a MIG profile, or
	// memory) call it. Nil means that there is nothing to wait for.
	MIGReadinessGate func(ctx context.Context) error
	// PodResources is called when the inventory changes and while hardware is lost or withdrawn. Nil means that no
	// container ever holds an id.
	PodResources PodResources
	// Answered receives the duration of each answer to Allocate, for metrics. It returns at once and may be nil.
	Answered func(took time.Duration)
	// Share counts the connections of its sockets.
	Share *serve.Share
	// Suffix makes socket names unique: another one at each start, of 1 to 16 characters a-z and 0-9. Empty
	// makes one by chance.
	Suffix string

	// preStart is how long PreStartContainer waits at most; 0 is preStartWait.
	preStart time.Duration
}

const (
	// preStartWait is less than the 30 s after which kubelet gives up, so that it gets the reason.
	preStartWait = 25 * time.Second
	// listDeadline bounds one call of PodResources, and so the delay until kubelet knows of a lost GPU.
	listDeadline = 2 * time.Second
	// listOften is the retry interval while List fails. listSeldom is the interval while the answer matters and no
	// grant changes.
	listOften  = 2 * time.Second
	listSeldom = 15 * time.Second
)

// Plugin advertises the GPUs of one node to kubelet. It is made by New; Set methods and Status may be called
// at any time, also before Run and while it runs.
type Plugin struct {
	opts Options
	// endpoints are those of the resources that any node may have, then those of MIG profiles in the order of their
	// arrival. They only grow. The lock mu guards them.
	endpoints []*endpoint

	// often and seldom are the intervals until the next List, after a failure and otherwise.
	often, seldom time.Duration

	// kick asks for a new decision.
	kick chan struct{}

	mu  sync.Mutex
	inv *Inventory
	on  map[sharing.ContainerRef][]sharing.GPURef

	// held is who was last seen to hold what, nil before the first time. Only decisions touch it.
	held map[sharing.ContainerRef]map[string][]string
}

// New makes a plugin that does nothing yet.
func New(o Options) *Plugin {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Suffix == "" {
		o.Suffix = strings.ToLower(rand.Text()[:8])
	}
	if o.preStart == 0 {
		o.preStart = preStartWait
	}
	p := &Plugin{opts: o, often: listOften, seldom: listSeldom, kick: make(chan struct{}, 1)}
	for _, r := range fixed() {
		p.endpoints = append(p.endpoints, p.endpoint(r))
	}
	return p
}

func (p *Plugin) endpoint(resource string) *endpoint {
	s := service{resource: resource, board: newBoard(), gate: p.opts.ReadinessGate, wait: p.opts.preStart,
		log:      p.opts.Log,
		answered: p.opts.Answered}
	if resource == sharing.ResourceMemory || sharing.IsMIGResource(resource) {
		s.gate = both(p.opts.ReadinessGate, p.opts.MIGReadinessGate)
	}
	return &endpoint{svc: s, share: p.opts.Share, dir: p.opts.Dir, suffix: p.opts.Suffix, log: p.opts.Log}
}

// both is open when a and b are; nil is always open.
func both(a, b func(context.Context) error) func(context.Context) error {
	if a == nil || b == nil {
		if a == nil {
			return b
		}
		return a
	}
	return func(ctx context.Context) error {
		if err := a(ctx); err != nil {
			return err
		}
		return b(ctx)
	}
}

// grow makes the endpoints of MIG profiles that the inventory has, or a container holds ids of, and there are none of
// yet. It returns the new ones.
func (p *Plugin) grow(inv Inventory) []*endpoint {
	want := inv.profiles()
	for _, ids := range p.held {
		for r := range ids {
			if sharing.IsMIGResource(r) {
				want = append(want, r)
			}
		}
	}
	slices.Sort(want)
	p.mu.Lock()
	defer p.mu.Unlock()
	var made []*endpoint
	for _, r := range slices.Compact(want) {
		if !slices.ContainsFunc(p.endpoints, func(e *endpoint) bool { return e.svc.resource == r }) {
			made = append(made, p.endpoint(r))
			p.endpoints = append(p.endpoints, made[len(made)-1])
		}
	}
	return made
}

// all are the endpoints that there are now.
func (p *Plugin) all() []*endpoint {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.endpoints)
}

// SetInventory sets the node's GPUs. It returns at once and kubelet learns it soon after. An invalid inventory (no
// GPU, one GPU twice, more than MaxIDs of a resource) changes nothing and returns a *sharing.FieldError. It withdraws
// resources and units that are missing from it: free ids at once, used ids when they are free.
func (p *Plugin) SetInventory(inv Inventory) error {
	inv, err := inv.checked()
	if err != nil {
		return err
	}
	p.mu.Lock()
	same := p.inv != nil && p.inv.equal(inv)
	if !same {
		p.inv = &inv
	}
	p.mu.Unlock()
	if !same {
		p.decideSoon()
	}
	return nil
}

// SetOwners says which containers have a grant on which GPU; where grants are known at the start, call it
// before SetInventory. All of a container's GPUs count, the sound
// ones too: its ids are taken to be spread evenly over them. The names identify a container; PodUID is not
// looked at.
func (p *Plugin) SetOwners(holders map[sharing.GPURef][]sharing.ContainerRef) {
	on := make(map[sharing.ContainerRef][]sharing.GPURef)
	for gpu, refs := range holders {
		for _, ref := range refs {
			ref.PodUID = ""
			// Two pods of one name, one of them on its way out, may be named for the same GPU.
			if have := on[ref]; len(have) == 0 || have[len(have)-1] != gpu {
				on[ref] = append(have, gpu)
			}
		}
	}
	p.mu.Lock()
	p.on = on
	p.mu.Unlock()
	p.decideSoon()
}

func (p *Plugin) decideSoon() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// Run serves kubelet until ctx ends, and returns when nothing of it runs any more: nil, or a
// *sharing.FieldError for options that cannot be. It may run once.
func (p *Plugin) Run(ctx context.Context) error {
	if !regexp.MustCompile(`^[a-z0-9]{1,16}$`).MatchString(p.opts.Suffix) {
		return sharing.Invalid("suffix", p.opts.Suffix, "use 1 to 16 characters a-z and 0-9",
			"cannot be part of a socket's name")
	}
	if !filepath.IsAbs(p.opts.Dir) {
		return sharing.Invalid("dir", p.opts.Dir, "name kubelet's folder of device plugins", "is not an absolute path")
	}
	var g errgroup.Group
	g.Go(func() error { p.sweeps(ctx); return nil })
	serve := func(e *endpoint) { g.Go(func() error { e.run(ctx); return nil }) }
	for _, e := range p.all() {
		serve(e)
	}
	g.Go(func() error { p.decisions(ctx, serve); return nil })
	return g.Wait()
}

// sweeps removes what earlier starts have left. It checks again when the sockets of a plugin that ended just before are
// old enough to decide.
func (p *Plugin) sweeps(ctx context.Context) {
	for range 2 {
		if err := sweep(ctx, p.opts.Dir, time.Now()); err != nil {
			p.opts.Log.Warn("failed to remove stale sockets", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(bindTime + time.Second):
		}
	}
}

// Status is what became of one resource.
type Status struct {
	// Resource is the full name.
	Resource string
	// Advertised is false until the resource is advertised for the first time.
	Advertised bool
	// Registered is true while kubelet watches the list.
	Registered bool
	// IDs and Healthy are how many units kubelet counts as capacity and as allocatable.
	IDs, Healthy int
	// Err is why it is not registered, nil where nothing has failed.
	Err error
}

// Status reports each resource, in the order of first advertisement.
func (p *Plugin) Status() []Status {
	endpoints := p.all()
	out := make([]Status, 0, len(endpoints))
	for _, e := range endpoints {
		s := Status{Resource: e.svc.resource}
		if l := e.svc.board.cur.Load(); l != nil {
			s.Advertised, s.IDs, s.Healthy = true, len(l.devices), l.healthy()
		}
		e.mu.Lock()
		s.Registered, s.Err = e.registered, e.last
		e.mu.Unlock()
		out = append(out, s)
	}
	return out
}
