// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
	"github.com/kerf-gpu/kerf/sharing/node/lifecycle"
	"github.com/kerf-gpu/kerf/sharing/node/observe"
	"github.com/kerf-gpu/kerf/sharing/node/status"
	"github.com/kerf-gpu/kerf/sharing/node/store"
)

// State reads ledger, driver and cgroups. It takes as long as the slowest GPU, 2 s at most.
func (r *Runtime) State(ctx context.Context) (s status.State) {
	p := r.sampler.Sample(ctx)
	r.Store.Read(func(l store.Reader) { s = r.state(l, p) })
	return s
}

func (r *Runtime) state(l store.Reader, p observe.Sample) status.State {
	why := r.NotReady()
	s := status.State{
		Ready: len(why) == 0, NotReady: why, AgentVersion: r.opt.Version, GPUSettings: r.opt.GPUSettings,
		Config: r.settings.Source(), Pool: r.settings.Pool().Name,
		Profiles:     r.settings.Config().ProfileNames(r.settings.Pool()),
		ConfigErrors: r.Conditions.ConfigErrors(), Waiting: r.settings.Waiting(),
		Warnings: r.Conditions.Sentences(conditions.Warns),
	}
	for _, why := range r.Conditions.Sentences(conditions.StopsPods) {
		s.Warnings = append(s.Warnings, "pods get no GPU: "+why)
	}
	if r.Driver.Get() != nil {
		s.DriverVersion = r.Driver.Get().Driver.Version()
	}
	health := map[sharing.GPURef]sharing.Health{}
	cut := r.Instances.StatesWith(instanceNode{r}.grants(l))
	at := r.placing(l)
	outlooks := r.Modes.Outlooks(modeNode{r}.picture(at), cut, time.Now())
	for _, v := range at.GPUs {
		health[v.GPU.Ref()] = v.GPU.Health
		g := status.GPU{GPU: v.GPU, Granted: v.GrantedMemory, GrantedPercent: v.GrantedPercent, Burst: v.BurstMemory,
			Utilization: -1}
		if !v.GPU.Ref().IsInstance() {
			g.MIGState, g.Turning = cut[v.GPU.UUID], outlooks[v.GPU.UUID]
		}
		if v.GPU.Health == sharing.HealthOK {
			g.Levels, g.LevelReason = at.LevelsOf(v.GPU, g.MIGState)
		}
		g.MinLevel = r.settings.Pool().MinLevelOf(at.Settings[v.GPU.Ref()])
		g.Backends = r.backendStates(v.GPU, at.Grants)
		if use, ok := p.GPUs[v.GPU.Ref()]; ok {
			g.Used, g.UsedKnown, g.Utilization = use.Used, !v.GPU.SystemMemory, use.Utilization
		}
		if pids := p.Unmanaged[v.GPU.Ref()]; len(pids) > 0 {
			s.Warnings = append(s.Warnings, fmt.Sprintf("GPU %d is used by processes without a grant on it: pid %s",
				v.GPU.Index, lifecycle.Numbers(pids)))
		}
		if told := p.Unattributed(v.GPU, at.Grants); told != "" {
			s.Warnings = append(s.Warnings, told)
		}
		s.GPUs = append(s.GPUs, g)
	}
	if r.settings.Pool().Mode.Shared() {
		s.Warnings = append(s.Warnings, status.WeakShares(s.GPUs)...)
	}
	for _, g := range at.Grants {
		s.Grants = append(s.Grants, r.grantState(l, g, p, health))
		for _, f := range g.Placement {
			if use, ended := p.Ended[observe.Key{Grant: g.ID, GPU: f.GPU}]; ended {
				s.Warnings = append(s.Warnings, use.Sentence(g.ID, gpuOf(l, f.GPU).Index))
			}
		}
		s.Warnings = append(s.Warnings, r.beyond(l, g, p)...)
	}
	return s
}

// Grant is one grant as State shows it, without asking the driver for its use.
func (r *Runtime) Grant(id ledger.GrantID) (out status.Grant, ok bool) {
	r.Store.Read(func(l store.Reader) {
		var g ledger.Grant
		if g, ok = l.Get(id); !ok {
			return
		}
		health := map[sharing.GPURef]sharing.Health{}
		for _, v := range l.GPUs() {
			health[v.GPU.Ref()] = v.GPU.Health
		}
		out = r.grantState(l, g, observe.Sample{}, health)
	})
	return out, ok
}

func (r *Runtime) grantState(l store.Reader, g ledger.Grant, p observe.Sample,
	health map[sharing.GPURef]sharing.Health) status.Grant {
	id, way := g.ID, backend.PropertiesOf(g.Backend)
	f := status.Facts{
		Found: r.Guard.Of(id), Shared: jointWhy(l, g), Started: lifecycle.StartedReason(g, p.PIDs[id]),
		ManagedMemory: r.settings.Pool().ManagedMemory,
		NoDriver:      r.Driver.Get() == nil, Speaker: speaker(l, g),
	}
	f.Lost = cmp.Or(g.Current().Unverified, f.Found.Lost, g.Current().Doubt)
	if level, why, less := r.weaker(l, g); less {
		f.Weaker = &status.Weaker{Level: level, Reason: why}
	}
	for _, fr := range g.Placement {
		on := health[fr.GPU]
		if o, is := r.Health.Fault(fr); is {
			on = status.Worse(on, o.Health)
		}
		f.Health = append(f.Health, on)
	}
	if g.Active == nil {
		return status.GrantOf(g, f, p)
	}
	f.Instance = r.InstanceLost(l, g.Reservation)
	if way.Served {
		f.Fault = r.BackendOf(g, r.Driver.Get()).Check(lifecycle.GrantOf(l, g)).Unknown
	}
	if f.Speaker == id {
		f.Refused = r.Libkerf.Refused(string(id))
	}
	if way.Counts {
		f.Time = status.TimeFacts{Rule: r.settings.Pool().ComputePolicy.String(), Priority: r.settings.PriorityOf(g)}
		f.Time.Times, f.Time.Unlimited = r.Libkerf.TimeOf(string(id), g.Placement) // of all that share its cap
	}
	return status.GrantOf(g, f, p)
}

// beyond are warnings of a grant that holds more than its cap.
func (r *Runtime) beyond(l store.Reader, g ledger.Grant, p observe.Sample) []string {
	if speaker(l, g) != g.ID {
		return nil
	}
	watched := backend.PropertiesOf(g.Backend).Watch == backend.WatchListed && watches(l, r, g)
	return status.Beyond(g, watched, p, func(gpu sharing.GPURef) int { return gpuOf(l, gpu).Index })
}
