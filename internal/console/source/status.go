// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"strings"

	"github.com/kerf-gpu/kerf/api/gpunode"
	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
	"github.com/kerf-gpu/kerf/internal/console/model"
)

// statusOf is the node API's answer in the form of a GPUNode, and the measured values by GPU.
func statusOf(p *nodeapi.GetNodeResponse) (gpunode.Status, map[string]model.Usage) {
	ready := gpunode.Condition{Type: gpunode.ConditionReady, Status: gpunode.False,
		Message: strings.Join(p.GetNotReady(), "\n")}
	if p.GetReady() {
		ready.Status = gpunode.True
	}
	s := gpunode.Status{Pool: p.GetConfig().GetPool(), DriverVersion: p.GetDriverVersion(),
		AgentVersion: p.GetAgentVersion(), Conditions: []gpunode.Condition{ready},
		Config: &gpunode.Config{SHA256: p.GetConfig().GetSha256(), Errors: p.GetConfig().GetErrors()}}
	for _, w := range p.GetConfig().GetPending() {
		s.Config.Pending = append(s.Config.Pending, gpunode.PendingSettings{GPU: w.GetGpu(), Settings: w.GetSettings(),
			BlockedBy: w.GetBlockedBy()})
	}
	measured := map[string]model.Usage{}
	for _, g := range p.GetGpus() {
		s.GPUs = append(s.GPUs, gpuOf(g))
		measured[g.GetUuid()] = model.Usage{Used: g.UsedBytes, Utilization: g.Utilization, Shares: map[string]uint64{}}
	}
	for _, g := range p.GetGrants() {
		s.Grants = append(s.Grants, grantOf(g))
		for _, f := range g.GetShares() {
			if u, ok := measured[f.GetGpu()]; ok && f.UsedBytes != nil {
				u.Shares[g.GetId()] = f.GetUsedBytes()
			}
			for i := range s.GPUs {
				if s.GPUs[i].UUID == f.GetGpu() && f.GetWhole() {
					s.GPUs[i].Whole = true
				}
			}
		}
	}
	s.Fingerprint = gpunode.Fingerprint(s.Grants)
	return s, measured
}

func gpuOf(g *nodeapi.GPU) gpunode.GPU {
	allocatable := g.GetCapacityBytes() - min(g.GetReservedBytes(), g.GetCapacityBytes())
	out := gpunode.GPU{UUID: g.GetUuid(), Index: int(g.GetIndex()), Model: g.GetModel(), PCI: g.GetPci(),
		CapacityBytes: bytesOf(g.GetCapacityBytes()), AllocatableBytes: bytesOf(allocatable),
		GrantedBytes: bytesOf(g.GetGrantedBytes()), GrantedPercent: int(g.GetGrantedPercent()),
		FreeBytes:   bytesOf(allocatable - min(g.GetGrantedBytes(), allocatable)),
		FreePercent: max(0, 100-int(g.GetGrantedPercent())), Health: g.GetHealth(), HealthReason: g.GetHealthReason(),
		Levels: g.GetLevels(), MIG: g.GetMig()}
	out.SystemMemory = g.CapacityBytes == nil
	if m := g.GetMigState(); m.GetCapable() {
		out.MIGState = &gpunode.MIGState{MemorySlices: int(m.GetMemorySlices()), Profiles: m.GetProfiles(),
			Error: m.GetError(), PendingReason: m.GetPendingReason(), LayoutFromPool: m.GetLayoutFromPool()}
		for _, i := range m.GetInstances() {
			out.MIGState.Instances = append(out.MIGState.Instances, gpunode.MIGInstance{Profile: i.GetProfile(),
				Start: int(i.GetStart()), MemorySlices: int(i.GetMemorySlices()), Managed: i.GetManaged(),
				Ready: i.GetReady(), Grant: i.GetGrant(), RequestedBy: i.GetRequestedBy()})
		}
	}
	return out
}

func grantOf(g *nodeapi.Grant) gpunode.Grant {
	out := gpunode.Grant{ID: g.GetId(), PodUID: g.GetPodUid(), Namespace: g.GetPodNamespace(), Pod: g.GetPodName(),
		Container: g.GetContainer(), Profile: g.GetProfile(), State: g.GetState(), Level: g.GetLevel(),
		Backend: g.GetBackend()}
	if out.Pod == "" {
		out.Container = g.GetName()
	}
	for _, f := range g.GetShares() {
		out.Shares = append(out.Shares, gpunode.Share{GPU: f.GetGpu(), MemoryBytes: bytesOf(f.GetMemoryBytes()),
			Percent: int(f.GetPercent()), Whole: f.GetWhole(), MIGProfile: f.GetMigProfile(),
			MIGStart: int(f.GetMigStart())})
	}
	return out
}

// bytesOf is an amount as a GPUNode has it.
func bytesOf(n uint64) int64 {
	const most = uint64(1)<<63 - 1
	return int64(min(n, most))
}
