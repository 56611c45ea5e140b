// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend"
	"github.com/kerf-gpu/kerf/sharing/config/change"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
	"github.com/kerf-gpu/kerf/sharing/node/lifecycle"
	"github.com/kerf-gpu/kerf/sharing/node/mode"
	"github.com/kerf-gpu/kerf/sharing/node/observe"
)

// State is one consistent picture of the node.
type State struct {
	Ready         bool
	NotReady      []string
	DriverVersion string
	AgentVersion  string
	// GPUSettings is sharing.GPUSettingsManage or sharing.GPUSettingsReadOnly.
	GPUSettings  string
	GPUs         []GPUState
	Grants       []GrantState
	Config       ConfigSource
	Pool         string
	Profiles     []string
	ConfigErrors []string
	// Waiting are the settings of GPUs that wait for those who use them.
	Waiting  []change.Step
	Warnings []string
}

// GPUState is one GPU with its use.
type GPUState struct {
	sharing.GPU
	Used           sharing.Bytes
	UsedKnown      bool
	Granted        sharing.Bytes
	GrantedPercent sharing.Percent
	// Lent is what leases may use beyond what they are granted; Granted does not have it.
	Lent        sharing.Bytes
	Utilization int // -1 when not known
	// MIG is how it is cut; the zero value for a GPU that cannot be.
	MIGState mig.State
	// Turning is what becomes of it where its MIG mode is demand's to change.
	Turning mode.Outlook
	Levels  []sharing.Level
	// LevelReason says why a share cannot have a higher level; empty where nothing stronger is listed. MinLevel is what pool
	// and rules demand of shares; LevelUnknown where they say nothing.
	LevelReason string
	MinLevel    sharing.Level
	// Backends are all that there are, strongest first; nil while they have not been probed.
	Backends []BackendState
}

// GrantState is one claim with its lease and its use.
type GrantState struct {
	ledger.Grant
	// Level is what holds the grant now: unknown when its cap could not be verified.
	Level       sharing.Level
	LevelReason string
	// Backend is what was put in force at the start of its lease.
	Backend sharing.Backend
	// Used and UsedKnown have one entry for each fragment.
	Used      []sharing.Bytes
	UsedKnown []bool
	PIDs      []int
	Health    sharing.Health
	Compute   Compute
	// Events has an entry for each fragment of a lease; nil for one whose cap another speaks for.
	Events []CapEvents
}

// State reads ledger, driver and cgroups. It takes as long as the slowest GPU, 2 s at most.
func (r *Runtime) State(ctx context.Context) State {
	p := r.sampler.Sample(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	why := r.Core.NotReady()
	s := State{
		Ready: len(why) == 0, NotReady: why, AgentVersion: r.opt.Version, GPUSettings: r.opt.GPUSettings,
		Config: r.settings.Source(), Pool: r.settings.Pool().Name, Profiles: r.settings.Config().ProfileNames(r.settings.Pool()),
		ConfigErrors: r.conditions.ConfigErrors(), Waiting: r.settings.Waiting(), Warnings: r.conditions.Sentences(conditions.Warns),
	}
	for _, why := range r.conditions.Sentences(conditions.StopsPods) {
		s.Warnings = append(s.Warnings, "pods get no GPU: "+why)
	}
	if r.Driver.Get() != nil {
		s.DriverVersion = r.Driver.Get().Driver.Version()
	}
	health := map[sharing.GPUID]sharing.Health{}
	cut := r.instances.StatesWith(instanceNode{r}.grants())
	at := r.placing()
	outlooks := r.modes.Outlooks(modeNode{r}.picture(at), cut, time.Now())
	for _, v := range at.GPUs {
		health[v.GPU.UUID] = v.GPU.Health
		g := GPUState{MIGState: cut[v.GPU.UUID], GPU: v.GPU, Granted: v.HeldMemory, GrantedPercent: v.HeldPercent, Lent: v.LentMemory, Utilization: -1}
		if v.GPU.Health == sharing.HealthOK {
			g.Levels, g.LevelReason = at.LevelsOf(v.GPU, g.MIGState)
		}
		g.MinLevel = r.settings.Pool().MinLevelOf(at.Settings[v.GPU.UUID])
		g.Turning, g.Backends = outlooks[v.GPU.UUID], r.backendStates(v.GPU)
		if use, ok := p.GPUs[v.GPU.UUID]; ok {
			g.Used, g.UsedKnown, g.Utilization = use.Used, true, use.Utilization
		}
		if pids := p.Unmanaged[v.GPU.UUID]; len(pids) > 0 {
			s.Warnings = append(s.Warnings, fmt.Sprintf("GPU %d is used by processes without a grant on it: pid %s", v.GPU.Index, lifecycle.Numbers(pids)))
		}
		if told := p.Unattributed(v.GPU, r.ledger.Grants()); told != "" {
			s.Warnings = append(s.Warnings, told)
		}
		s.GPUs = append(s.GPUs, g)
	}
	if r.settings.Pool().Mode.Shared() {
		s.Warnings = append(s.Warnings, weakShares(s.GPUs)...)
	}
	for _, g := range r.ledger.Grants() {
		s.Grants = append(s.Grants, r.grantState(g, p, health))
		for _, f := range g.Claim.Placement {
			if use, ended := p.Ended[observe.Key{Grant: g.Claim.ID, GPU: f.GPU}]; ended {
				s.Warnings = append(s.Warnings, use.Sentence(g.Claim.ID, r.gpu(f.GPU).Index))
			}
		}
		s.Warnings = append(s.Warnings, r.beyond(g, p)...)
	}
	return s
}

// Grant is one grant as State shows it, without asking the driver for its use.
func (r *Runtime) Grant(id ledger.ClaimID) (GrantState, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g, ok := r.ledger.Get(id)
	if !ok {
		return GrantState{}, false
	}
	health := map[sharing.GPUID]sharing.Health{}
	for _, v := range r.ledger.GPUs() {
		health[v.GPU.UUID] = v.GPU.Health
	}
	return r.grantState(g, observe.Sample{}, health), true
}

// grantState needs the lock.
func (r *Runtime) grantState(g ledger.Grant, p observe.Sample, health map[sharing.GPUID]sharing.Health) GrantState {
	gs := GrantState{Grant: g, Level: g.Claim.Level, LevelReason: g.Claim.LevelReason, Backend: g.Claim.Backend, PIDs: p.PIDs[g.Claim.ID], Health: sharing.HealthOK}
	if lost := cmp.Or(g.Current().Unverified, r.guard.Of(g.Claim.ID).Lost, g.Current().Doubt); lost != "" {
		gs.Level, gs.LevelReason = sharing.LevelUnknown, lost
	}
	gs.LevelReason = lifecycle.JoinSentences([]string{r.jointWhy(g), gs.LevelReason})
	if level, why, less := r.weaker(g); less {
		gs.Level, gs.LevelReason = level, why
	}
	// startedWhy comes last, so that 'kerf limit' can leave out what the reason said before.
	caveat := r.settings.Pool().ManagedMemory.CaveatAt(gs.Level, gs.Backend)
	gs.LevelReason = lifecycle.JoinSentences([]string{gs.LevelReason, caveat, lifecycle.StartedWhy(g, gs.PIDs)})
	gs.Compute = r.computeOf(g)
	gs.Events = r.capEventsOf(g)
	if g.Lease != nil && backend.PropertiesOf(g.Claim.Backend).Served {
		if fault := r.BackendOf(g, r.Driver.Get()).Check(r.GrantOf(g)); fault.Unknown != "" {
			gs.Level, gs.LevelReason = sharing.LevelUnknown, fault.Unknown
		}
	}
	if g.Lease != nil && r.Driver.Get() == nil {
		gs.Level, gs.LevelReason = sharing.LevelUnknown, "no driver answers"
	}
	if why := r.InstanceLost(g.Claim); g.Lease != nil && why != "" {
		gs.Level, gs.LevelReason = sharing.LevelUnknown, why
	}
	for _, f := range g.Claim.Placement {
		used, known := sharing.Bytes(0), g.Lease == nil // a claim without a lease uses nothing
		if g.Lease != nil {
			used, known = p.Used(g.Claim.ID, f.GPU)
		}
		gs.Used, gs.UsedKnown = append(gs.Used, used), append(gs.UsedKnown, known)
		gs.Health = worse(gs.Health, health[f.GPU])
		if o, is := r.Health.Fault(f); is {
			gs.Health = worse(gs.Health, o.Health)
		}
		if pids := p.Unmanaged[f.GPU]; f.Whole && len(pids) > 0 {
			gs.Level = sharing.LevelNone
			gs.LevelReason = fmt.Sprintf("GPU %s was granted whole, and processes that are not of this grant use it: pid %s", f.GPU, lifecycle.Numbers(pids))
		}
	}
	return gs
}

// worse returns the health that is further from healthy; unknown stands between healthy and suspect.
func worse(a, b sharing.Health) sharing.Health {
	rank := func(h sharing.Health) int {
		switch h {
		case sharing.HealthOK:
			return 0
		case sharing.HealthSuspect:
			return 2
		case sharing.HealthUnhealthy:
			return 3
		case sharing.HealthLost:
			return 4
		case sharing.HealthUnknown:
		}
		return 1
	}
	if rank(b) > rank(a) {
		return b
	}
	return a
}
