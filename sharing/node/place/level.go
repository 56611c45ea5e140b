// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package place

import (
	"slices"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend"
	"github.com/kerf-gpu/kerf/sharing/backend/choice"
	"github.com/kerf-gpu/kerf/sharing/backend/mps"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// Backends are what enforces shares on a node at one moment.
type Backends struct {
	Config config.Config
	Pool   config.Pool
	// Settings has the settings of each GPU for new grants.
	Settings map[sharing.GPURef]config.GPUSettings
	// Reports are those of the attached driver, by GPU; nil without a driver.
	Reports map[sharing.GPURef]choice.Report
}

// List are the backends for shares of a GPU for requests of a profile, the strongest first.
func (b *Backends) List(gpu sharing.GPURef, profile string) []sharing.Backend {
	return b.Config.BackendsOn(b.Settings[gpu], b.Pool, profile)
}

// levels are those that a grant on the GPU can have now with the backends of the list, and which backend enforces a
// share.
func (b *Backends) levels(g sharing.GPU, list []sharing.Backend, but choice.Without) ([]sharing.Level, choice.Choice) {
	rep, known := b.Reports[g.Ref()]
	if g.MIG || !known {
		return nil, choice.Choice{}
	}
	c := choice.Choose(choice.On{List: list, Report: rep.But(but)})
	if g.Ref().IsInstance() {
		return []sharing.Level{c.Level}, c
	}
	return []sharing.Level{sharing.LevelExclusive, c.Level}, c
}

// LevelsOf are the levels that a grant can have on a healthy GPU with that MIG state. The reason says why a share
// cannot have a stronger one.
func (n *Node) LevelsOf(g sharing.GPU, state mig.State) (levels []sharing.Level, reason string) {
	on := g.MIG && state.On
	switch {
	case on && state.Shared: // its instances have levels themselves
		return nil, ""
	case on && state.Fixed && len(state.MaxInstances) == 0: // it has no instance and gets none
		return nil, ""
	case on && !state.ModeSwitchable:
		return []sharing.Level{sharing.LevelHardware}, ""
	case g.MIG: // demand may switch it: it gives what it gave before, too
		rep, known := n.Modes.Before(g.UUID)
		if !known {
			return []sharing.Level{sharing.LevelHardware}, ""
		}
		c := choice.Choose(choice.On{List: n.List(g.Ref(), ""), Report: rep})
		return []sharing.Level{sharing.LevelHardware, sharing.LevelExclusive, c.Level}, c.Reason
	}
	if g.SystemMemory {
		return []sharing.Level{sharing.LevelExclusive}, sharing.NoShares
	}
	levels, by := n.levels(g, n.List(g.Ref(), ""), nil)
	return levels, by.Reason
}

// Counts reports whether the backend for shares of the GPU, of any profile, counts the memory of programs.
func (b *Backends) Counts(g sharing.GPU) bool {
	names := []string{""}
	for _, p := range b.Config.Profiles() {
		names = append(names, p.Name)
	}
	return slices.ContainsFunc(names, func(profile string) bool {
		_, by := b.levels(g, b.List(g.Ref(), profile), nil)
		return backend.PropertiesOf(by.Backend).Counts
	})
}

// Terms are the terms of an owner's grant that c enforces.
func (b *Backends) Terms(o ledger.Owner, c choice.Choice) ledger.Terms {
	return ledger.Terms{Level: c.Level, LevelReason: c.Reason, Backend: c.Backend, Domain: b.domain(o)}
}

// domain names who may share a daemon of MPS with an owner.
func (b *Backends) domain(o ledger.Owner) string {
	if b.Pool.MPSDaemonScope == config.MPSScopePool {
		return mps.PoolDomain(o.Pod())
	}
	return mps.DomainOf(o.Pod(), o.Namespace, o.UID)
}
