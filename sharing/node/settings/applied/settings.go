// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package applied owns the configuration that a node applies, and the settings that each of its GPUs has.
//
// It promises that a GPU in use keeps its settings until it is idle. No grant can come between the check of a GPU's
// users and the change of its settings.
package applied

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/config/change"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// Source tells where the applied configuration came from.
type Source struct {
	// File is empty for the built-in default.
	File   string
	SHA256 string
}

// Node is the part of the node runtime that Settings needs.
type Node interface {
	// View calls f with the grants, and with false while there may be others. No grant changes until f returns. f must
	// not wait for anything. It returns true if Allocatable has changed: the node takes its inventory from there again,
	// before any other grant.
	View(f func(grants []ledger.Grant, known bool) (amounts bool))
	// Known returns false while there may be other grants than the node knows. It waits for nothing.
	Known() bool
}

// Settings are the applied configuration, and what each GPU has. They are safe for concurrent use.
type Settings struct {
	log     *slog.Logger
	node    Node
	changed func()

	// saving is held while the file is written. It is taken before mu.
	saving sync.Mutex
	file   file

	// mu is taken after the locks that Node.View holds. Node.Known may take locks that are taken after mu.
	mu     sync.Mutex
	config config.Config
	pool   config.Pool
	source Source
	// gpus are all GPUs, as the driver shows them.
	gpus []sharing.GPU
	// has is what each GPU has. Modes and sharers are not in it: new grants get those of the pool at once.
	has     map[sharing.GPUID]config.GPUSettings
	waiting []change.Step
}

// New applies a configuration to a node without GPUs. changed is called after each change, without a lock of Settings.
func New(log *slog.Logger, node Node, changed func(), c config.Config, pool config.Pool) *Settings {
	return &Settings{log: log, node: node, changed: changed, config: c, pool: pool,
		has: map[sharing.GPUID]config.GPUSettings{}}
}

// Apply applies a configuration. Grants keep what they have.
func (s *Settings) Apply(c config.Config, pool config.Pool, source Source) {
	s.update(func() { s.config, s.pool, s.source = c, pool, source })
	s.changed()
}

// SetInventory takes in all GPUs of the node, as the driver shows them. Shared MIG instances are not among them.
func (s *Settings) SetInventory(gpus []sharing.GPU) { s.update(func() { s.gpus = slices.Clone(gpus) }) }

// Settle gives idle GPUs the settings of the pool. Call it after each change of the users.
func (s *Settings) Settle() { s.update(func() {}) }

// update changes the input, and then what the GPUs have.
func (s *Settings) update(input func()) {
	var plan change.Plan
	var changed bool
	s.node.View(func(grants []ledger.Grant, known bool) (amounts bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		input()
		plan = change.Desired(s.pool, s.gpus, s.has, change.Users{Of: users(grants), Known: known})
		amounts = otherAmounts(s.has, plan.Next)
		changed = !maps.Equal(s.has, plan.Next) || !slices.EqualFunc(s.waiting, plan.Pending, sameStep)
		s.has, s.waiting = plan.Next, plan.Pending
		return amounts
	})
	s.save()
	if !changed {
		return
	}
	for _, step := range plan.Now {
		s.log.Info("changed settings of GPU", "gpu", string(step.GPU), "what", step.What)
	}
	s.changed()
}

func sameStep(a, b change.Step) bool {
	return a.GPU == b.GPU && slices.Equal(a.What, b.What) && slices.Equal(a.For, b.For)
}

// users names the pods and processes that have a part of each GPU, each once.
func users(grants []ledger.Grant) map[sharing.GPUID][]string {
	out := map[sharing.GPUID][]string{}
	for _, g := range grants {
		o := g.Owner
		name := o.Namespace + "/" + o.PodName
		if !o.Pod() {
			name = fmt.Sprintf("grant %s", g.ID)
		}
		for _, f := range g.Placement {
			if id := f.GPU.UUID; !slices.Contains(out[id], name) {
				out[id] = append(out[id], name)
			}
		}
	}
	for _, names := range out {
		slices.Sort(names)
	}
	return out
}

// otherAmounts reports whether a change of settings changes which GPUs can be granted, or how much of them.
func otherAmounts(from, to map[sharing.GPUID]config.GPUSettings) bool {
	for id, next := range to {
		if now := from[id]; now.Excluded != next.Excluded || now.MemoryReserve != next.MemoryReserve ||
			now.Overcommit != next.Overcommit {
			return true
		}
	}
	return false
}

// Allocatable are those of the GPUs and shared MIG instances that are not left to others, with what can be granted of
// them. The arguments are as the driver shows them.
func (s *Settings) Allocatable(gpus []sharing.GPU) []sharing.GPU {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]sharing.GPU, 0, len(gpus))
	for _, g := range gpus {
		has, known := s.has[g.UUID]
		if has.Excluded {
			continue
		}
		if known {
			g.Overcommit = has.Overcommit
		}
		if reserved, err := g.Reserved.Add(has.MemoryReserve); err == nil && !g.Ref().IsInstance() {
			g.Reserved = min(reserved, g.Memory)
		}
		out = append(out, g)
	}
	return out
}

// Of are the settings for new grants on a GPU with these grants. Call Of while no grant changes.
func (s *Settings) Of(g sharing.GPU, grants []ledger.Grant) config.GPUSettings {
	s.mu.Lock()
	defer s.mu.Unlock()
	want, id := s.pool.Of(g), g.UUID
	has, known := s.has[id]
	if !known {
		return want
	}
	want.FrontEnd = has.FrontEnd // it changes with what is advertised
	gpu := g
	if i := slices.IndexFunc(s.gpus, func(g sharing.GPU) bool { return g.UUID == id }); i >= 0 {
		gpu = s.gpus[i]
	}
	next := s.pool.Of(gpu)
	if has.Backends == next.Backends && has.MinLevel == next.MinLevel {
		return want
	}
	if !s.node.Known() || len(users(grants)[id]) > 0 { // before all grants are known, each GPU may be in use
		want.Backends, want.MinLevel = has.Backends, has.MinLevel
		return want
	}
	has.Backends, has.MinLevel = next.Backends, next.MinLevel
	s.has[id] = has
	return want
}

// BackendsOn are the backends for new grants of a profile on a GPU with these grants. Call it while no grant changes.
func (s *Settings) BackendsOn(g sharing.GPU, grants []ledger.Grant, profile string) []sharing.Backend {
	return s.Config().BackendsOn(s.Of(g, grants), s.Pool(), profile)
}

// Has is what a GPU has.
func (s *Settings) Has(gpu sharing.GPUID) config.GPUSettings {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.has[gpu]
}

// Lists reports whether the pool, a profile, or what a GPU in use has lists a backend.
func (s *Settings) Lists(b sharing.Backend) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.config.Lists(s.pool, b) {
		return true
	}
	for _, has := range s.has {
		if slices.Contains(has.Backends.List(), b) {
			return true
		}
	}
	return slices.ContainsFunc(s.config.Profiles(),
		func(p config.Profile) bool { return slices.Contains(p.Backends, b) })
}

// Waiting are the settings that wait for users of GPUs.
func (s *Settings) Waiting() []change.Step {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting
}

// Excluded are the GPUs that the pool leaves to others.
func (s *Settings) Excluded() []sharing.GPU { return s.those(true) }

// Used are the GPUs that the pool does not leave to others, as the driver shows them.
func (s *Settings) Used() []sharing.GPU { return s.those(false) }

func (s *Settings) those(excluded bool) []sharing.GPU {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.gpus),
		func(g sharing.GPU) bool { return s.has[g.UUID].Excluded != excluded })
}

// Config is the applied configuration.
func (s *Settings) Config() config.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.config
}

// PriorityOf is the class of a grant: its profile's, else its pod's.
func (s *Settings) PriorityOf(g ledger.Grant) int32 {
	return s.Config().PriorityOf(g.Request.Profile, g.Priority)
}

// Pool is the node's pool in the applied configuration.
func (s *Settings) Pool() config.Pool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pool
}

// Text is that of the applied configuration. It is empty for the built-in default.
func (s *Settings) Text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.source.SHA256 == "" {
		return ""
	}
	text, err := s.config.Encode()
	if err != nil {
		return "" // nothing can be shown
	}
	return string(text)
}

// Source tells where the applied configuration came from.
func (s *Settings) Source() Source {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.source
}
