// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nodeserver

import (
	"math"

	nodev1 "github.com/kerf-gpu/kerf/api/node/v1"
	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/node/mode"
	"github.com/kerf-gpu/kerf/sharing/node/status"
)

// Message renders the runtime's state as the node API shows it.
func Message(s status.State) *nodev1.GetNodeResponse {
	out := &nodev1.GetNodeResponse{
		Ready: s.Ready, NotReady: s.NotReady, DriverVersion: s.DriverVersion, AgentVersion: s.AgentVersion,
		Warnings: s.Warnings, GpuSettings: s.GPUSettings,
		Config: &nodev1.ConfigStatus{
			Source: s.Config.File, Sha256: s.Config.SHA256, Pool: s.Pool, Errors: s.ConfigErrors, Profiles: s.Profiles,
		},
	}
	for _, w := range s.Waiting {
		out.Config.Waiting = append(out.Config.Waiting, &nodev1.ConfigWaiting{Gpu: string(w.GPU), Index: small(w.Index),
			What: w.What, For: w.For})
	}
	for _, g := range s.GPUs {
		out.Gpus = append(out.Gpus, gpuMessage(g))
	}
	for _, g := range s.Grants {
		out.Grants = append(out.Grants, grantMessage(g))
	}
	return out
}

func gpuMessage(g status.GPU) *nodev1.GPU {
	m := &nodev1.GPU{
		Uuid: g.Ref().String(), Index: small(g.Index), Model: g.Model, Pci: g.PCI, Numa: small(g.NUMA),
		MemoryBytes: uint64(g.Memory), ReservedBytes: uint64(g.Reserved),
		UsedBytes: uint64(g.Used), UsedKnown: g.UsedKnown,
		GrantedBytes: uint64(g.Granted), GrantedPercent: uint32(g.GrantedPercent), LentBytes: uint64(g.Burst),
		MemoryOvercommitPercent: uint32(g.Overcommit.Memory), ComputeOvercommitPercent: uint32(g.Overcommit.Compute),
		Utilization: small(g.Utilization), Health: g.Health.String(), HealthReason: g.HealthReason, Mig: g.MIG,
	}
	m.MigState = migMessage(g.MIGState, g.Turning)
	for _, l := range g.Levels {
		m.Levels = append(m.Levels, l.String())
	}
	for _, b := range g.Backends {
		m.Backends = append(m.Backends, &nodev1.Backend{
			Name: b.Backend.String(), Level: b.Backend.Level().String(), Listed: b.Listed,
			Answer: b.Support.Answer.String(), Reason: b.Support.Reason, Remedy: b.Support.Remedy,
		})
	}
	return m
}

func migMessage(s mig.State, t mode.Outlook) *nodev1.MIG {
	if s.GPU == "" {
		return nil
	}
	return &nodev1.MIG{
		Able: s.Able, On: s.On, Fixed: s.Fixed, Units: small(s.Units), Profiles: s.Profiles,
		Pieces:  instancesMessage(s.Instances),
		Trouble: s.Trouble, Waits: s.Waits, TurnsTo: string(t.To), TurnsFor: t.For, TurnStays: t.Stays,
	}
}

func instancesMessage(list []mig.Instance) []*nodev1.MIGInstance {
	var out []*nodev1.MIGInstance
	for _, p := range list {
		out = append(out, &nodev1.MIGInstance{
			Profile: p.Profile, Start: small(p.Start), Size: small(p.Size), Ours: p.Ours, Ready: p.Ready, Uuid: p.UUID,
			Grant: p.Grant, Holder: p.Holder,
		})
	}
	return out
}

func grantMessage(g status.Grant) *nodev1.Grant {
	c := g.Claim
	m := &nodev1.Grant{
		Id: string(c.ID), Name: c.Name, State: stateOf(g), Level: g.Level.String(), LevelReason: g.LevelReason,
		Backend: g.Backend.String(),
		Uid:     c.Owner.UID, PodUid: c.Owner.PodUID, Container: c.Owner.Container,
		Health: g.Health.String(), Profile: c.Request.Profile, Whole: c.Request.Kind == sharing.KindWhole,
		UsedKnown: true,
	}
	m.PodNamespace, m.PodName = c.Owner.Namespace, c.Owner.PodName
	if g.Lease != nil {
		m.Cgroup, m.ContainerId, m.UsedBy = g.Lease.Cgroup, g.Lease.ContainerID, g.Lease.Container
		for _, f := range g.Lease.Part {
			m.InForce = append(m.InForce, &nodev1.Share{Gpu: f.GPU.String(), MemoryBytes: uint64(f.Memory),
				Percent: uint32(f.Percent), Whole: f.Whole, MigProfile: f.MIG.Profile, MigStart: small(f.MIG.Start)})
		}
	}
	m.With = string(c.With)
	for _, f := range g.SharedCap {
		m.Joint = append(m.Joint, &nodev1.Share{Gpu: f.GPU.String(), MemoryBytes: uint64(f.Memory),
			Percent: uint32(f.Percent)})
	}
	m.Compute = &nodev1.Compute{By: g.Compute.By, Why: g.Compute.Why, Priority: g.Compute.Priority}
	for _, pid := range g.PIDs {
		m.Pids = append(m.Pids, small(pid))
	}
	for i, f := range c.Placement {
		one := &nodev1.Share{
			Gpu: f.GPU.String(), MemoryBytes: uint64(f.Memory), Percent: uint32(f.Percent), Whole: f.Whole,
			UsedBytes: uint64(g.Used[i]), UsedKnown: g.UsedKnown[i], LentBytes: uint64(g.Burst[f.GPU]),
			BurstBytes: uint64(f.Burst),
			MigProfile: f.MIG.Profile, MigStart: small(f.MIG.Start),
		}
		if len(g.Compute.Times) > i {
			one.Time = timeMessage(g.Compute.Times[i])
		}
		if len(g.Events) > i {
			one.CapEvents = eventsMessage(g.Events[i])
		}
		m.Fragments = append(m.Fragments, one)
		m.MemoryBytes += uint64(f.Memory)
		m.Percent += uint32(f.Percent)
		m.UsedBytes += uint64(g.Used[i])
		m.UsedKnown = m.UsedKnown && g.UsedKnown[i]
	}
	if !m.UsedKnown {
		m.UsedBytes = 0
	}
	return m
}

func timeMessage(t status.Time) *nodev1.Time {
	return &nodev1.Time{
		UsedPercent: small(t.Percent), ChargedSeconds: t.Charged.Seconds(), Launches: t.Launches,
		LaunchesPastBudget: t.Past,
		WaitedSeconds:      t.Waited.Seconds(),
	}
}

func eventsMessage(e status.CapEvents) *nodev1.CapEvents {
	m := &nodev1.CapEvents{}
	if e.Counted {
		m.Refused = &e.Refused
	}
	if e.Watched {
		m.Violations, m.DelaySeconds = &e.Violations, e.Delay.Seconds()
	}
	return m
}

func stateOf(g status.Grant) string {
	switch {
	case g.Claim.Recovered:
		return "recovered"
	case g.Lease != nil:
		return "leased"
	}
	return "claimed"
}

// small is n as the wire has it. Indexes, NUMA nodes, percentages and pids are far below the limit.
func small(n int) int32 { return int32(max(math.MinInt32, min(n, math.MaxInt32))) }
