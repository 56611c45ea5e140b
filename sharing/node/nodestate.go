// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
	"github.com/kerf-gpu/kerf/sharing/node/observe"
	"github.com/kerf-gpu/kerf/sharing/node/status"
	"github.com/kerf-gpu/kerf/sharing/node/store"
)

// LedgerState reads the ledger. It calls no other process.
func (r *Runtime) LedgerState() (b status.LedgerState) {
	why := r.PodsNotReady()
	r.Store.Read(func(l store.Reader) { b = r.books(l, why) })
	return b
}

func (r *Runtime) books(l store.Reader, why []string) status.LedgerState {
	b := status.LedgerState{PodsNotReady: why, AgentVersion: r.opt.Version, Pool: r.settings.Pool().Name,
		Config: r.settings.Source(), ConfigErrors: r.Conditions.ConfigErrors(), Waiting: r.settings.Waiting(),
		Excluded: r.settings.Excluded(), DriverReleased: r.Conditions.Has(conditions.DriverReleased)}
	if len(b.ConfigErrors) > 0 {
		b.ConfigText = r.settings.Text()
	}
	if now := r.Driver.Get(); now != nil {
		b.DriverVersion, b.CUDAVersion = now.Driver.Version(), now.CUDAVersion
	}
	health := map[sharing.GPURef]sharing.Health{}
	cut := r.Instances.StatesWith(instanceNode{r}.grants(l))
	at := r.placing(l)
	outlooks := r.Modes.Outlooks(modeNode{r}.picture(at), cut, time.Now())
	for _, v := range at.GPUs {
		health[v.GPU.Ref()] = v.GPU.Health
		g := status.BookedGPU{View: v, Settings: at.Settings[v.GPU.Ref()]}
		physical := !v.GPU.Ref().IsInstance()
		if physical {
			g.MIG = cut[v.GPU.UUID]
			for _, one := range at.Faults(v.GPU.UUID) {
				g.Faulty = append(g.Faulty, one.Instance)
			}
		}
		g.MinLevel = r.settings.Pool().MinLevelOf(g.Settings)
		if v.GPU.Health == sharing.HealthOK {
			var why string
			if g.Levels, why = at.LevelsOf(v.GPU, g.MIG); sharing.ShareLevel(g.Levels) < sharing.LevelReactive {
				g.LevelReason = why
			}
			if physical {
				g.SwitchableTo = outlooks[v.GPU.UUID].Ready()
			}
		}
		if why := r.Modes.Switching(v.GPU.UUID); physical && why != "" { // nothing of it is to be had before it is over
			g.FreeMemory, g.FreePercent, g.MIG.Error = 0, 0, cmp.Or(g.MIG.Error, why)
		}
		b.GPUs = append(b.GPUs, g)
	}
	for _, g := range at.Grants {
		b.Grants = append(b.Grants, r.grantState(l, g, observe.Sample{}, health))
	}
	b.Unplaced, b.Ending = r.Unplaced.List(), r.endings.List()
	return b
}
