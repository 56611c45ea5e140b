// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/kerf-gpu/kerf/internal/mps"
	"github.com/kerf-gpu/kerf/sharing"
)

// tickEvery is how often daemons are looked at.
const tickEvery = time.Second

// Supervisor runs control daemons. Make it with New, tell it once with Recover which attachments there are, and have
// Run watch. It is safe for concurrent use.
type Supervisor struct {
	opt Options

	mu   sync.Mutex
	gpus map[sharing.GPUID]*gpu // entries are never taken out
	// shown is what States returns, so that a reader never waits for the start of a daemon. The daemons of domains with
	// grants have their files in places.
	shown  map[sharing.GPUID][]State
	places map[Key]place
}

// New returns a supervisor that has started nothing. It is sharing.ErrInvalid when sockets below Options.Dir would have
// paths that are too long.
func New(o Options) (*Supervisor, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.StartTime = cmp.Or(o.StartTime, startTime)
	longest := o.newPlace(Key{GPU: "GPU-00000000-0000-0000-0000-000000000000"})
	longest.alone = true
	if err := mps.CheckPipe(longest.pipe()); err != nil {
		return nil, err
	}
	return &Supervisor{opt: o, gpus: map[sharing.GPUID]*gpu{}, shown: map[sharing.GPUID][]State{},
		places: map[Key]place{}}, nil
}

// gpu returns a GPU's entry, locked.
func (s *Supervisor) gpu(id sharing.GPUID) *gpu {
	s.mu.Lock()
	g := s.gpus[id]
	if g == nil {
		g = &gpu{id: id, domains: map[string]*domain{}}
		s.gpus[id] = g
	}
	s.mu.Unlock()
	g.mu.Lock()
	return g
}

func check(k Key, t Terms) error {
	if k.GPU == "" || k.Domain == "" || t.Memory < sharing.MiB || t.Percent > sharing.FullGPU {
		return fmt.Errorf("use MPS on GPU %q in domain %q with %v and %v: %w", k.GPU, k.Domain, t.Memory, t.Percent,
			sharing.ErrInvalid)
	}
	return nil
}

// domain returns that of a key, made where there is none. g.mu is held.
func (s *Supervisor) domain(g *gpu, k Key) *domain {
	d := g.domains[k.Domain]
	if d == nil {
		d = newDomain(&s.opt, k, s.opt.newPlace(k))
		g.domains[k.Domain] = d
		s.settle(d)
	}
	return d
}

// settle makes known where a domain has its files.
func (s *Supervisor) settle(d *domain) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.places[d.key] = d.place
}

// AddUser makes an attachment one of a daemon's users before the daemon has to run. The directories for its containers
// are there, and stay while there are attachments. An attachment that has joined keeps its terms. On error it is none.
// Errors: sharing.ErrInvalid, sharing.ErrUnavailable and sharing.ErrDenied (the directories).
func (s *Supervisor) AddUser(ctx context.Context, k Key, active string, t Terms) error {
	if err := check(k, t); err != nil {
		return err
	}
	g := s.gpu(k.GPU)
	defer s.release(g)
	d := s.domain(g, k)
	if _, had := d.attachments[active]; had {
		return d.make()
	}
	d.attachments[active] = t
	if err := d.make(); err != nil {
		return errors.Join(fmt.Errorf("prepare for MPS on GPU %s in domain %q: %w", k.GPU, k.Domain, err),
			s.leave(context.WithoutCancel(ctx), g, d, active))
	}
	return nil
}

// Acquire makes an attachment one of a daemon's users. It returns the pipe directory for its processes, once the daemon
// and a server of it run. An attachment that has joined gets the new terms. On error it is none, and a daemon that was
// started for it alone has been ended. Errors: sharing.ErrInvalid (the terms, the key), sharing.ErrUnavailable (the
// daemon or its server does not come up, or the compute mode cannot be set).
func (s *Supervisor) Acquire(ctx context.Context, k Key, active string, t Terms) (string, error) {
	if err := check(k, t); err != nil {
		return "", err
	}
	g := s.gpu(k.GPU)
	defer s.release(g)
	d := s.domain(g, k)
	before, had := d.attachments[active]
	d.attachments[active], d.begun = t, true
	err := d.make()
	if err == nil {
		err = g.setMode(ctx, &s.opt, len(g.domains))
	}
	if err == nil {
		err = g.admits()
	}
	if err == nil {
		err = d.up(ctx)
	}
	if err == nil {
		return d.daemon.Pipe, nil
	}
	err = fmt.Errorf("use MPS on GPU %s in domain %q: %w", k.GPU, k.Domain, err)
	if had {
		d.attachments[active] = before
		return "", err
	}
	return "", errors.Join(err, s.leave(context.WithoutCancel(ctx), g, d, active))
}

// Places are what a client of a daemon needs to reach it.
type Places struct {
	// Pipe is the pipe directory, by the path that daemon and clients have for it.
	Pipe string
	// Source and Shm are for a container, which mounts the first at Pipe and the second at /dev/shm; empty for a
	// process.
	Source, Shm string
	// Own is the folder that a process must see: a mount, for a user's own daemon.
	Own string
}

// Places tells what the clients of a key's daemon need, whether it runs or not. sharing.ErrUnavailable: no attachment
// of the key is known.
func (s *Supervisor) Places(k Key) (Places, error) {
	s.mu.Lock()
	p, ok := s.places[k]
	s.mu.Unlock()
	if !ok {
		return Places{}, fmt.Errorf("no attachment of MPS on GPU %s in domain %q is known: %w", k.GPU, k.Domain,
			sharing.ErrUnavailable)
	}
	out := Places{Pipe: p.pipe(), Own: p.dir}
	if p.contained {
		out.Source, out.Shm = filepath.Join(p.shared(), "pipe"), p.shm()
	}
	return out, nil
}

// Release ends an attachment's use. The last one of a domain ends its daemon; what cannot be ended is tried again by
// Run. An unknown attachment is no error.
func (s *Supervisor) Release(ctx context.Context, k Key, active string) error {
	g := s.gpu(k.GPU)
	defer s.release(g)
	d := g.domains[k.Domain]
	if d == nil {
		return nil
	}
	if _, ok := d.attachments[active]; !ok {
		return nil
	}
	return s.leave(ctx, g, d, active)
}

// leave takes an attachment out, and ends the daemon with the last. g.mu is held.
func (s *Supervisor) leave(ctx context.Context, g *gpu, d *domain, active string) error {
	delete(d.attachments, active)
	if len(d.attachments) > 0 {
		if d.condition != Ready {
			return nil // it gets its bounds when it comes up
		}
		return d.limit(ctx)
	}
	return s.end(ctx, g, d)
}

// end ends a daemon without attachments. It stays among the domains while that fails. g.mu is held.
func (s *Supervisor) end(ctx context.Context, g *gpu, d *domain) error {
	if err := d.stop(ctx); err != nil {
		_ = d.down(err)
		return err
	}
	delete(g.domains, d.key.Domain)
	s.mu.Lock()
	delete(s.places, d.key)
	s.mu.Unlock()
	return g.setMode(ctx, &s.opt, len(g.domains))
}

// Run checks every daemon once a second until ctx ends. It starts dead ones again, and ends those that could not be
// ended before. It leaves them running: the end of this program disturbs no client.
func (s *Supervisor) Run(ctx context.Context) {
	for wait(ctx, tickEvery) == nil {
		s.tick(ctx)
	}
}

func (s *Supervisor) tick(ctx context.Context) {
	for _, g := range s.all() {
		g.mu.Lock()
		for _, d := range g.domains {
			if len(d.attachments) > 0 {
				if d.begun {
					d.look(ctx)
				}
			} else if err := s.end(ctx, g, d); err != nil {
				s.opt.Log.Error("failed to stop MPS daemon", "gpu", g.id, "domain", d.key.Domain, "error", err)
			}
		}
		if len(g.domains) == 0 {
			if err := g.setMode(ctx, &s.opt, 0); err != nil {
				s.opt.Log.Error("failed to restore compute mode", "gpu", g.id, "error", err)
			}
		}
		s.release(g)
	}
}

// all returns the GPUs, in order.
func (s *Supervisor) all() []*gpu {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*gpu
	for _, g := range s.gpus {
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b *gpu) int { return cmp.Compare(a.id, b.id) })
	return all
}

// release unlocks a GPU's entry and shows what became of its daemons.
func (s *Supervisor) release(g *gpu) {
	var now []State
	for _, d := range g.domains {
		now = append(now, State{
			Key: d.key, Condition: d.condition, Reason: d.reason, Pipe: d.daemon.Pipe, Daemon: d.pid,
			Servers:     slices.Clone(d.servers),
			Attachments: len(d.attachments), Restarts: d.retry.restarts, Exclusive: g.exclusive,
		})
	}
	s.mu.Lock()
	s.shown[g.id] = now
	s.mu.Unlock()
	g.mu.Unlock()
}

// State returns how one daemon was when it was looked at last; ok is false where there is none. It never waits.
func (s *Supervisor) State(k Key) (st State, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.shown[k.GPU], func(st State) bool { return st.Key == k })
	if i < 0 {
		return State{}, false
	}
	return s.shown[k.GPU][i], true
}

// States returns how all daemons were when they were looked at last, by GPU and domain. It never waits.
func (s *Supervisor) States() []State {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []State
	for _, all := range s.shown {
		out = append(out, all...)
	}
	slices.SortFunc(out, func(a, b State) int {
		return cmp.Or(cmp.Compare(a.Key.GPU, b.Key.GPU), cmp.Compare(a.Key.Domain, b.Key.Domain))
	})
	return out
}
