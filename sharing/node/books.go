// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"time"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/config/change"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/health"
	"github.com/kerf-gpu/kerf/sharing/node/mode"
	"github.com/kerf-gpu/kerf/sharing/node/observe"
	"github.com/kerf-gpu/kerf/sharing/node/unplaced"
)

// Books are what is booked on the node, without what the driver measures.
type Books struct {
	// PodsNotReady is empty when pods' containers can start.
	PodsNotReady                      []string
	DriverVersion, AgentVersion, Pool string
	GPUs                              []BookedGPU
	// Grants are as State shows them; Used is not known in them.
	Grants []GrantState
	// Config is the document in force, ConfigErrors are the mistakes of a newer one, and Waiting is what waits of the one in
	// force.
	Config       ConfigSource
	ConfigErrors []string
	Waiting      []change.Step
	// Document is the text of the one in force, set while there are ConfigErrors.
	Document string
	// Excluded are the GPUs that the pool leaves to others, and that are not among GPUs.
	Excluded []sharing.GPU
	// Unplaced are the pods that wait here for room, by UID.
	Unplaced []unplaced.Pod
	// Ending are the pods that end for a fault, or have, by UID.
	Ending []health.Ending
}

// BookedGPU is one GPU with its room, and the levels that a claim can have there.
type BookedGPU struct {
	ledger.View
	Levels []sharing.Level
	// LevelReason says why each backend is not available where no backend enforces shares, or where that is unknown.
	LevelReason string
	// MinLevel is what pool and rules demand of shares; LevelUnknown where they say nothing.
	MinLevel sharing.Level
	// Settings are what holds for it.
	Settings config.GPUSettings
	// MIG is how it is cut; the zero value where nothing is known of that.
	MIG mig.State
	// TurnsTo is what the GPU, which is idle, would become for a pod that asks for that; empty where it stays as it is.
	TurnsTo mode.Kind
}

// Books reads the books. It asks nobody, and returns at once.
func (r *Runtime) Books() Books {
	why := r.PodsNotReady()
	r.mu.Lock()
	defer r.mu.Unlock()
	b := Books{PodsNotReady: why, AgentVersion: r.opt.Version, Pool: r.settings.Pool().Name, Config: r.settings.Source(), ConfigErrors: r.conditions.ConfigErrors(), Waiting: r.settings.Waiting(), Excluded: r.settings.Excluded()}
	if len(b.ConfigErrors) > 0 {
		b.Document = r.settings.Document()
	}
	if r.Driver.Get() != nil {
		b.DriverVersion = r.Driver.Get().Driver.Version()
	}
	health := map[sharing.GPUID]sharing.Health{}
	cut := r.instances.StatesWith(instanceNode{r}.grants())
	at := r.placing()
	outlooks := r.modes.Outlooks(modeNode{r}.picture(at), cut, time.Now())
	for _, v := range at.GPUs {
		health[v.GPU.UUID] = v.GPU.Health
		g := BookedGPU{View: v, MIG: cut[v.GPU.UUID], Settings: at.Settings[v.GPU.UUID]}
		g.MinLevel = r.settings.Pool().MinLevelOf(g.Settings)
		if v.GPU.Health == sharing.HealthOK {
			var why string
			if g.Levels, why = at.LevelsOf(v.GPU, g.MIG); sharing.ShareLevel(g.Levels) < sharing.LevelReactive {
				g.LevelReason = why
			}
			g.TurnsTo = outlooks[v.GPU.UUID].Ready()
		}
		if why := r.modes.Switching(v.GPU.UUID); why != "" { // nothing of it is to be had before it is over
			g.FreeMemory, g.FreePercent, g.MIG.Trouble = 0, 0, cmp.Or(g.MIG.Trouble, why)
		}
		b.GPUs = append(b.GPUs, g)
	}
	for _, g := range r.ledger.Grants() {
		b.Grants = append(b.Grants, r.grantState(g, observe.Sample{}, health))
	}
	b.Unplaced, b.Ending = r.unplaced.List(), r.endings.List()
	return b
}
