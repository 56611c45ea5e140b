// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nodeserver

import (
	"math"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/node/mode"
	"github.com/kerf-gpu/kerf/sharing/node/status"
)

// Message renders the runtime's state as the node API shows it.
func Message(s status.State) *nodeapi.GetNodeResponse {
	out := &nodeapi.GetNodeResponse{
		Ready: s.Ready, NotReady: s.NotReady, DriverVersion: s.DriverVersion, AgentVersion: s.AgentVersion,
		Warnings: s.Warnings, GpuSettings: s.GPUSettings,
		Config: &nodeapi.ConfigStatus{
			Source: s.Config.File, Sha256: s.Config.SHA256, Pool: s.Pool, Errors: s.ConfigErrors, Profiles: s.Profiles,
		},
	}
	for _, w := range s.Waiting {
		out.Config.Pending = append(out.Config.Pending, &nodeapi.PendingSettings{Gpu: string(w.GPU),
			Index: small(w.Index), Settings: w.What, BlockedBy: w.For})
	}
	for _, g := range s.GPUs {
		out.Gpus = append(out.Gpus, gpuMessage(g))
	}
	for _, g := range s.Grants {
		out.Grants = append(out.Grants, grantMessage(g))
	}
	return out
}

func gpuMessage(g status.GPU) *nodeapi.GPU {
	m := &nodeapi.GPU{
		Uuid: g.Ref().String(), Index: small(g.Index), Model: g.Model, Pci: g.PCI, Numa: small(g.NUMA),
		CapacityBytes: known(uint64(g.Memory), !g.SystemMemory), ReservedBytes: uint64(g.Reserved),
		UsedBytes: known(uint64(g.Used), g.UsedKnown), Utilization: percent(g.Utilization),
		GrantedBytes: uint64(g.Granted), GrantedPercent: uint32(g.GrantedPercent), BurstBytes: uint64(g.Burst),
		MemoryOvercommitPercent: uint32(g.Overcommit.Memory), ComputeOvercommitPercent: uint32(g.Overcommit.Compute),
		Health: g.Health.String(), HealthReason: g.HealthReason, Mig: g.MIG,
	}
	m.MigState = migMessage(g.MIGState, g.Turning)
	for _, l := range g.Levels {
		m.Levels = append(m.Levels, l.String())
	}
	for _, b := range g.Backends {
		m.Backends = append(m.Backends, &nodeapi.Backend{
			Name: b.Backend.String(), Level: b.Backend.Level().String(), Listed: b.Listed,
			Answer: b.Support.Answer.String(), Reason: b.Support.Reason, Remedy: b.Support.Remedy,
		})
	}
	return m
}

func migMessage(s mig.State, t mode.Outlook) *nodeapi.MIGState {
	if s.GPU == "" {
		return nil
	}
	return &nodeapi.MIGState{
		Capable: s.Able, Enabled: s.On, LayoutFromPool: s.Fixed, MemorySlices: small(s.Units), Profiles: s.Profiles,
		Instances: instancesMessage(s.Instances), Error: s.Error, PendingReason: s.PendingReason,
		SwitchableTo: string(t.To), ModeSwitchFor: t.For, ModeSwitchBlockedBy: t.Stays,
	}
}

func instancesMessage(list []mig.Instance) []*nodeapi.MIGInstance {
	var out []*nodeapi.MIGInstance
	for _, p := range list {
		out = append(out, &nodeapi.MIGInstance{
			Profile: p.Profile, Start: small(p.Start), MemorySlices: small(p.Size), Managed: p.Managed, Ready: p.Ready,
			Uuid: p.UUID, Grant: p.Grant, RequestedBy: p.Owner,
		})
	}
	return out
}

func grantMessage(g status.Grant) *nodeapi.Grant {
	c := g.Reservation
	m := &nodeapi.Grant{
		Id: string(c.ID), Name: c.Name, State: g.StateName(), Recovered: c.Recovered,
		Level: g.Level.String(), LevelReason: g.LevelReason, Backend: g.Backend.String(),
		UserId: c.Owner.UID, PodUid: c.Owner.PodUID, Container: c.Owner.Container,
		Health: g.Health.String(), Profile: c.Request.Profile, Whole: c.Request.Kind == sharing.KindWhole,
		CapSharedWith: string(c.With), Claims: c.Claims,
	}
	m.PodNamespace, m.PodName = c.Owner.Namespace, c.Owner.PodName
	if g.Active != nil {
		m.Cgroup, m.ContainerId, m.UsedBy = g.Active.Cgroup, g.Active.ContainerID, g.Active.Container
		m.EnforcedShares = sharesMessage(g.Active.Part)
	}
	m.SharedCap = sharesMessage(g.SharedCap)
	m.Compute = &nodeapi.Compute{By: g.Compute.By, Reason: g.Compute.Reason, Priority: g.Compute.Priority}
	for _, pid := range g.PIDs {
		m.Pids = append(m.Pids, small(pid))
	}
	m.Shares = sharesMessage(c.Placement)
	used, usedKnown := uint64(0), true
	for i, f := range c.Placement {
		one := m.Shares[i]
		one.UsedBytes = known(uint64(g.Used[i]), g.UsedKnown[i])
		one.BurstBytes, one.MaxBurstBytes = uint64(g.Burst[f.GPU]), uint64(f.Burst)
		if len(g.Compute.Times) > i {
			one.Time = timeMessage(g.Compute.Times[i])
		}
		if len(g.Events) > i {
			one.CapEvents = eventsMessage(g.Events[i])
		}
		m.MemoryBytes += uint64(f.Memory)
		m.Percent += uint32(f.Percent)
		used, usedKnown = used+uint64(g.Used[i]), usedKnown && g.UsedKnown[i]
	}
	m.UsedBytes = known(used, usedKnown)
	return m
}

func sharesMessage(p sharing.Placement) []*nodeapi.Share {
	var out []*nodeapi.Share
	for _, f := range p {
		out = append(out, &nodeapi.Share{
			Gpu: f.GPU.String(), MemoryBytes: uint64(f.Memory), Percent: uint32(f.Percent), Whole: f.Whole,
			MigProfile: f.MIG.Profile, MigStart: small(f.MIG.Start),
		})
	}
	return out
}

func timeMessage(t status.Time) *nodeapi.Time {
	return &nodeapi.Time{
		UsedPercent: percent(t.Percent), ChargedSeconds: t.Charged.Seconds(), Launches: t.Launches,
		LaunchesOverBudget: t.Past, ThrottledSeconds: t.Waited.Seconds(),
	}
}

func eventsMessage(e status.CapEvents) *nodeapi.CapEvents {
	m := &nodeapi.CapEvents{}
	if e.Counted {
		m.Refused = &e.Refused
	}
	if e.Watched {
		m.Violations, m.DelaySeconds = &e.Violations, e.Delay.Seconds()
	}
	return m
}

// known is nil for an unknown value.
func known(v uint64, ok bool) *uint64 {
	if !ok {
		return nil
	}
	return &v
}

// percent is nil for a value below 0, which stands for an unknown one.
func percent(n int) *uint32 {
	if n < 0 {
		return nil
	}
	v := uint32(min(n, math.MaxInt32))
	return &v
}

// small is n as the wire has it. Indexes, NUMA nodes, percentages and pids are far below the limit.
func small(n int) int32 { return int32(max(math.MinInt32, min(n, math.MaxInt32))) }
