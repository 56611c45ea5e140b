// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

const (
	// every is the longest time between two checks.
	every = time.Second
	// firstPause is the time to the next attempt after a failure. It doubles up to lastPause.
	firstPause = time.Second
	lastPause  = 15 * time.Second
	// deadline bounds the creation of one instance.
	deadline = 90 * time.Second
)

// Manager is the MIG manager. Only Ensure calls the driver.
type Manager interface {
	//
	// Candidate is what a GPU gives to a request for a profile, from a start or mig.AnyStart, in addition to what is
	// taken.
	Candidate(gpu sharing.GPUID, profile string, start int, taken []mig.Granted) mig.Candidate
	// Fits reports whether an instance answers a request for a profile.
	Fits(gpu sharing.GPUID, profile string, in sharing.Instance) bool
	// Ensure creates an instance. warm is true if it existed.
	Ensure(ctx context.Context, gpu sharing.GPUID, in sharing.Instance, who string) (d sharing.MIGDevice, warm bool,
		err error)
	// Wake tells that grants ended.
	Wake()
	// States are the GPUs as the manager saw them last.
	States() []mig.State
}

// Node is what a Reconciler needs of the node runtime.
type Node interface {
	// View calls f with the grants of instances. ready is false while nothing can be created for them. No grant changes
	// until f returns. f must not wait for anything.
	View(f func(grants []Grant, ready bool))
	// Grant is the grant of an instance; false for another grant.
	Grant(id ledger.GrantID) (Grant, bool)
	// Changed returns a channel that is closed after the next change of the node's state. Announce is such a change.
	Changed() <-chan struct{}
	Announce()
	// Subscribe delivers the transitions that wants chooses.
	Subscribe(wants func(ledger.Transition) bool) Transitions
	// Created reports an attempt. Its error is that of the attempt.
	Created(g Grant, r Result) error
}

// Transitions are those that were not taken yet, in order.
type Transitions interface {
	// Ready receives when there may be something to take.
	Ready() <-chan struct{}
	// Take returns the next ones. resync is true if some before them are missing.
	Take() (steps []ledger.Transition, resync bool)
	Close()
}

// Result is how an attempt to create an instance ended.
type Result struct {
	// Ensured is how long the manager took, and EnsureErr its error.
	Ensured   time.Duration
	EnsureErr error
	// Warm is true if the instance existed.
	Warm bool
	// Err is nil if the instance exists and the container runtime knows it.
	Err error
}

// Notice is what became of the instance of a pod's container, for people.
type Notice struct {
	// Container has the instance, or waits for it.
	Container sharing.ContainerRef
	GPU       sharing.GPU
	Instance  sharing.Instance
	// Took is how long the attempt took. Warm is true if the instance existed.
	Took time.Duration
	Warm bool
	// Err is why the instance is not there yet. There will be another attempt.
	Err error
}

// attempt is how far the instance of a grant is.
type attempt struct {
	// device is the instance as it was created last, the zero value before.
	device sharing.MIGDevice
	// busy is true while an attempt runs.
	busy bool
	// err is the error of the last attempt. The next one is due at again, after a pause.
	err   error
	again time.Time
	pause time.Duration
}

// due reports whether an attempt for g is due, and returns what is known then.
func (a attempt) due(g Grant, states []mig.State, now time.Time) (attempt, bool) {
	if !g.Container || a.busy {
		return a, false
	}
	if !g.Active && a.device.UUID != "" && lost(states, g.Placement[0], g.Instance) != "" {
		a.device = sharing.MIGDevice{} // the next container gets another one at its place
	}
	a.busy = a.device.UUID == "" && !now.Before(a.again)
	return a, a.busy
}

func (a attempt) ended(err error, now time.Time) attempt {
	a.busy, a.err = false, err
	if err != nil {
		a.pause = min(max(2*a.pause, firstPause), lastPause)
		a.again = now.Add(a.pause)
	}
	return a
}

// Reconciler creates the instances of grants. New makes it; it is safe for concurrent use.
type Reconciler struct {
	// Files are the driver's.
	Files Files
	// Holds are the instances of claims without a grant.
	Holds Holds

	log  *slog.Logger
	node Node
	kick chan struct{}
	// shown has a separate lock, which is taken before Node.View.
	shown shown
	// tell may be nil. It is set before Run.
	tell func(ctx context.Context, n Notice)

	// mu is taken inside Node.View, and never held over a call to node or manager.
	mu       sync.Mutex
	manager  Manager
	attempts map[ledger.GrantID]attempt
}

// New returns a Reconciler that has no MIG manager yet.
func New(log *slog.Logger, node Node, files Files) *Reconciler {
	return &Reconciler{Files: files, log: log, node: node, kick: make(chan struct{}, 1),
		attempts: map[ledger.GrantID]attempt{}}
}

// NotifyTo sets who hears of the instances of pods. f returns at once. Call it before Run.
func (s *Reconciler) NotifyTo(f func(ctx context.Context, n Notice)) { s.tell = f }

// SetManager sets the MIG manager, nil for none.
func (s *Reconciler) SetManager(m Manager) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.manager = m
}

// Manager is the MIG manager, nil if there is none.
func (s *Reconciler) Manager() Manager {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.manager
}

// Run creates instances until ctx ends. It also finds those that were created before it started.
func (s *Reconciler) Run(ctx context.Context) error {
	var g errgroup.Group
	news := s.node.Subscribe(startsOrEnds)
	defer news.Close()
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		for _, id := range s.due(time.Now()) {
			g.Go(func() error {
				ctx, cancel := context.WithTimeout(ctx, deadline)
				defer cancel()
				_ = s.Create(ctx, id) // it is logged, and tried again
				return nil
			})
		}
		s.hide(ctx)
		for due := false; !due; {
			select {
			case <-ctx.Done():
				return g.Wait()
			case <-s.kick:
				due = true
			case <-t.C:
				due = true
			case <-news.Ready():
				due = s.heard(news.Take())
			}
		}
	}
}

// startsOrEnds chooses the first step of a grant with an instance, and the last one of any grant. An unused GPU can get
// another layout.
func startsOrEnds(step ledger.Transition) bool {
	return !step.Attachment && (step.From == ledger.Released && step.Instance || step.To == ledger.Released)
}

// heard reports whether grants have come or gone. The manager hears of those that are gone.
func (s *Reconciler) heard(steps []ledger.Transition, resync bool) bool {
	gone := resync || slices.ContainsFunc(steps, func(s ledger.Transition) bool { return s.To == ledger.Released })
	if m := s.Manager(); m != nil && gone {
		m.Wake()
	}
	return gone || len(steps) > 0
}

// due are the grants for which an attempt begins now. It forgets grants that ended.
func (s *Reconciler) due(now time.Time) []ledger.GrantID {
	var out []ledger.GrantID
	s.node.View(func(grants []Grant, ready bool) {
		var states []mig.State
		there := false
		if len(grants) > 0 {
			states, there = s.States()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		known := map[ledger.GrantID]bool{}
		for _, g := range grants {
			known[g.ID] = true
			if !ready || !there {
				continue
			}
			a, due := s.attempts[g.ID].due(g, states, now)
			if s.attempts[g.ID] = a; due {
				out = append(out, g.ID)
			}
		}
		maps.DeleteFunc(s.attempts, func(id ledger.GrantID, _ attempt) bool { return !known[id] })
	})
	return out
}

// Begin leaves the creation of a grant's instance to the caller, who calls Create. It is called inside Node.View.
func (s *Reconciler) Begin(id ledger.GrantID) {
	s.note(id, func(a attempt) attempt { a.busy = true; return a })
}

func (s *Reconciler) note(id ledger.GrantID, f func(attempt) attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts[id] = f(s.attempts[id])
}

// Create creates the instance of a grant and, if containers use the grant, shows it to the container runtime. It does
// nothing for another grant.
func (s *Reconciler) Create(ctx context.Context, id ledger.GrantID) error {
	g, ok := s.node.Grant(id)
	if !ok {
		return nil
	}
	err := s.create(ctx, g)
	s.note(id, func(a attempt) attempt { return a.ended(err, time.Now()) })
	if err != nil {
		s.log.Warn("failed to create MIG instance", "grant", id, "error", err.Error())
	}
	s.node.Announce()
	return err
}

func (s *Reconciler) create(ctx context.Context, g Grant) error {
	m := s.Manager()
	switch {
	case g.Instance.None():
		return fmt.Errorf("grant %q: its MIG instance %s is not there: %w", g.ID, Name(g.Placement[0]),
			sharing.ErrUnavailable)
	case m == nil:
		return fmt.Errorf("grant %q: MIG instances cannot be created now: %w", g.ID, sharing.ErrUnavailable)
	}
	start := time.Now()
	d, warm, err := m.Ensure(ctx, g.GPU.UUID, g.Instance, OwnerName(g.Reservation))
	r := Result{Ensured: time.Since(start), EnsureErr: err, Warm: warm, Err: err}
	if err == nil {
		r.Err = s.show(ctx, g, d)
	}
	if o := g.Owner; s.tell != nil && o.Pod() {
		ref := sharing.ContainerRef{PodUID: o.PodUID, Namespace: o.Namespace, Pod: o.PodName, Container: o.Container}
		s.tell(ctx, Notice{Container: ref, GPU: g.GPU, Instance: g.Instance, Took: time.Since(start), Warm: warm,
			Err: r.Err})
	}
	return s.node.Created(g, r)
}

// Await returns once the grant's instance can be given to a container, if it has one. The error is that of the last
// attempt, or sharing.ErrUnavailable after ctx.
func (s *Reconciler) Await(ctx context.Context, id ledger.GrantID) error {
	for first := true; ; first = false {
		changed := s.node.Changed()
		g, ok := s.node.Grant(id)
		s.mu.Lock()
		a := s.attempts[id]
		s.mu.Unlock()
		if !ok || !g.Container || a.device.UUID != "" {
			return nil
		}
		if first {
			s.Soon()
		}
		if a.err != nil && !a.busy {
			return a.err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("its MIG instance %s is still being created: %w", Name(g.Placement[0]),
				sharing.ErrUnavailable)
		case <-changed:
		}
	}
}

// Soon has Run look now at what it should create or hide.
func (s *Reconciler) Soon() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// Pending are sentences about instances whose first attempt has not ended.
func (s *Reconciler) Pending() []string {
	var out []string
	s.node.View(func(grants []Grant, _ bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, g := range grants {
			if a := s.attempts[g.ID]; g.Container && a.device.UUID == "" && a.err == nil {
				out = append(out, fmt.Sprintf("MIG instance %s is being created for %s", Name(g.Placement[0]),
					OwnerName(g.Reservation)))
			}
		}
	})
	return out
}

// Device is the instance of a grant as the driver has it, the zero value while it is not created.
func (s *Reconciler) Device(id ledger.GrantID) sharing.MIGDevice {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attempts[id].device
}

// States are those of the GPUs; false without a manager.
func (s *Reconciler) States() ([]mig.State, bool) {
	m := s.Manager()
	if m == nil {
		return nil, false
	}
	return m.States(), true
}

// StatesWith are those of the GPUs, with these grants.
func (s *Reconciler) StatesWith(grants []Grant) map[sharing.GPUID]mig.State {
	states, _ := s.States()
	s.mu.Lock()
	defer s.mu.Unlock()
	return join(states, grants, func(id ledger.GrantID) string {
		if err := s.attempts[id].err; err != nil {
			return err.Error()
		}
		return ""
	})
}

// Lost says why an instance is not there any more; empty while it is, and while that is not known.
func (s *Reconciler) Lost(f sharing.Share, in sharing.Instance) string {
	states, _ := s.States()
	return lost(states, f, in)
}
