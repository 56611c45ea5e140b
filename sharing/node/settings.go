// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/config/change"
	"github.com/kerf-gpu/kerf/sharing/node/settings/applied"
)

// ConfigSource tells where the applied configuration came from.
type ConfigSource = applied.Source

// Settings own the applied configuration, and what each GPU has of it.
func (r *Runtime) Settings() *applied.Settings { return r.settings }

// settingsNode is the runtime as applied.Settings needs it.
type settingsNode struct{ r *Runtime }

// View implements applied.Node. The caps of grants stay as they are: GPUs in use keep their settings.
func (n settingsNode) View(f func(change.Users) (amounts bool)) {
	r := n.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if !f(change.Users{Of: r.users(), Known: r.ready() == nil}) || r.driver.Get() == nil {
		return
	}
	if err := r.ledger.SetInventory(r.settings.Allocatable(r.driver.Get().GPUs)); err != nil {
		r.log.Error("failed to change the inventory", "error", err.Error()) // it was valid with other amounts
	}
	r.applyHealth()
}

// settingsOf are the settings for new grants on a GPU. It needs the lock.
func (r *Runtime) settingsOf(g sharing.GPU) config.GPUSettings {
	return r.settings.Of(g, func(id sharing.GPUID) bool {
		return r.ready() != nil || len(r.users()[id]) > 0 // before all users are known, each GPU may be in use
	})
}

// users names the pods and processes that have a part of each GPU, each once. It needs the lock.
func (r *Runtime) users() map[sharing.GPUID][]string {
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

// listOn are the backends for grants of the profile on a GPU. It needs the lock.
func (r *Runtime) listOn(g sharing.GPU, profile string) []sharing.Backend {
	return r.settings.Config().BackendsOn(r.settingsOf(g), r.settings.Pool(), profile)
}

// gpu is the GPU of that id, or its id alone where it is not there. It needs the lock.
func (r *Runtime) gpu(id sharing.GPUID) sharing.GPU {
	if v, ok := r.ledger.GPU(id); ok {
		return v.GPU
	}
	return sharing.GPU{UUID: id}
}
