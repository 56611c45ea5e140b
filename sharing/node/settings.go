// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator"
	"github.com/kerf-gpu/kerf/sharing/config"
)

// bySettings narrows what a GPU gives to what the pool says of it.
func bySettings(s *allocator.GPUState, set config.GPUSettings, claims int) {
	s.Sharers, s.MaxSharers, s.MinLevel = claims, set.Sharers, set.MinLevel
	if s.GPU.UUID.IsPart() {
		set.Mode = config.ModeAuto // what its GPU gives is the instance
	}
	if set.Exclude {
		s.Give("", false, false)
		return
	}
	s.Give(set.Mode.String(), set.Mode.Shared(), set.Mode.Whole())
}

// ruled is what holds the fractions of a GPU by its pool's rules.
type ruled struct {
	backends config.BackendList
	level    sharing.Level
}

// settingsOf is what holds for a GPU: what its pool says; but while somebody is on it, of what holds its fractions that which
// held when the first of them came, whatever documents came since. It needs the lock.
func (r *Runtime) settingsOf(g sharing.GPU) config.GPUSettings {
	s := r.pool.Of(g)
	was, kept := r.ruled[g.UUID.Device()]
	switch {
	case !kept:
		return s
	case r.ready() == nil && !r.devicesInUse()[g.UUID.Device()]:
		delete(r.ruled, g.UUID.Device())
		return s
	}
	s.Backends, s.MinLevel = was.backends, was.level // before it is known who is on it, somebody may be
	return s
}

// keepRuled keeps, for the GPUs in use, what holds their fractions, for a pool that says otherwise. It needs the lock.
func (r *Runtime) keepRuled() {
	used := r.devicesInUse()
	for _, v := range r.ledger.GPUs() {
		if id := v.GPU.UUID; used[id] {
			s := r.settingsOf(v.GPU)
			r.ruled[id] = ruled{s.Backends, s.MinLevel}
		}
	}
}

// devicesInUse are the GPUs of which somebody holds a piece. It needs the lock.
func (r *Runtime) devicesInUse() map[sharing.GPUID]bool {
	out := map[sharing.GPUID]bool{}
	for _, g := range r.ledger.Grants() {
		for _, f := range g.Claim.Placement {
			out[f.GPU.Device()] = true
		}
	}
	return out
}

// KeepSettings tells what held for GPUs before this agent started. Call it after Restore and before SetConfig: of those that
// are in use it then goes on to hold what it has to.
func (r *Runtime) KeepSettings(before map[sharing.GPUID]config.GPUSettings) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, s := range before {
		r.ruled[id] = ruled{s.Backends, s.MinLevel}
	}
}

// SettingsOf is what holds for a GPU now.
func (r *Runtime) SettingsOf(g sharing.GPU) config.GPUSettings {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.settingsOf(g)
}

// listOn are the backends for grants of the profile on a GPU. It needs the lock.
func (r *Runtime) listOn(g sharing.GPU, profile string) []sharing.Backend {
	return r.config.BackendsOn(r.settingsOf(g), r.pool, profile)
}

// gpu is the GPU of that id, or its id alone where it is not there. It needs the lock.
func (r *Runtime) gpu(id sharing.GPUID) sharing.GPU {
	if v, ok := r.ledger.GPU(id); ok {
		return v.GPU
	}
	return sharing.GPU{UUID: id}
}

// Users are those who hold a piece of each GPU, for people: pods as namespace/name, each once, and processes.
func (r *Runtime) Users() map[sharing.GPUID][]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[sharing.GPUID][]string{}
	for _, g := range r.ledger.Grants() {
		o := g.Claim.Owner
		name := o.Namespace + "/" + o.PodName
		if !o.Pod() {
			name = fmt.Sprintf("grant %s", g.Claim.ID)
		}
		for _, f := range g.Claim.Placement {
			if id := f.GPU.Device(); !slices.Contains(out[id], name) {
				out[id] = append(out[id], name)
			}
		}
	}
	for _, names := range out {
		slices.Sort(names)
	}
	return out
}
