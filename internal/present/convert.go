// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package present

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
)

// FromNode converts a sample of a node: GPUs by index, grants by name and ID.
func FromNode(p *nodeapi.GetNodeResponse) Status {
	c := p.GetConfig()
	s := Status{
		Ready: p.GetReady(), NotReady: list(p.GetNotReady()),
		DriverVersion: p.GetDriverVersion(), AgentVersion: p.GetAgentVersion(),
		Config: Config{
			Source: c.GetSource(), SHA256: c.GetSha256(), Pool: c.GetPool(),
			Errors: list(c.GetErrors()), Profiles: list(c.GetProfiles()), Pending: []PendingSettings{},
		},
		Warnings: list(p.GetWarnings()),
		GPUs:     []GPU{}, Grants: []Grant{},
	}
	for _, w := range c.GetPending() {
		s.Config.Pending = append(s.Config.Pending, PendingSettings{GPU: w.GetGpu(), Index: w.GetIndex(),
			Settings: list(w.GetSettings()), BlockedBy: list(w.GetBlockedBy())})
	}
	for _, g := range p.GetGpus() {
		s.GPUs = append(s.GPUs, fromGPU(g))
	}
	for _, g := range p.GetGrants() {
		s.Grants = append(s.Grants, FromGrant(g))
	}
	slices.SortStableFunc(s.GPUs, func(a, b GPU) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.UUID, b.UUID))
	})
	slices.SortStableFunc(s.Grants, func(a, b Grant) int {
		return cmp.Or(cmp.Compare(a.Label(), b.Label()), cmp.Compare(a.ID, b.ID))
	})
	return s
}

func fromGPU(g *nodeapi.GPU) GPU {
	out := GPU{
		UUID: g.GetUuid(), Index: g.GetIndex(), Model: g.GetModel(), PCI: g.GetPci(), NUMA: g.GetNuma(),
		CapacityBytes: g.CapacityBytes, UsedBytes: g.UsedBytes, GrantedPercent: g.GetGrantedPercent(),
		BurstBytes:       g.GetBurstBytes(),
		MemoryOvercommit: g.GetMemoryOvercommitPercent(), ComputeOvercommit: g.GetComputeOvercommitPercent(),
		Health: orUnknown(g.GetHealth()), HealthReason: g.GetHealthReason(), Levels: list(g.GetLevels()),
		MIG: g.GetMig(), MIGState: fromMIG(g.GetMigState()),
		Backends: []Backend{}, Utilization: g.Utilization,
	}
	if g.CapacityBytes != nil {
		out.ReservedBytes, out.GrantedBytes = new(g.GetReservedBytes()), new(g.GetGrantedBytes())
	}
	for _, b := range g.GetBackends() {
		out.Backends = append(out.Backends, Backend{
			Name: b.GetName(), Level: b.GetLevel(), Listed: b.GetListed(), Answer: b.GetAnswer(), Reason: b.GetReason(),
			Remedy: b.GetRemedy(),
		})
	}
	return out
}

// FromGrant converts one grant.
func FromGrant(g *nodeapi.Grant) Grant {
	if g == nil {
		g = &nodeapi.Grant{}
	}
	out := Grant{
		ID: g.GetId(), Name: g.GetName(), State: g.GetState(), Recovered: g.GetRecovered(), GPUs: []string{},
		Shares:      []Share{},
		MemoryBytes: g.GetMemoryBytes(), Percent: g.GetPercent(), UsedBytes: g.UsedBytes,
		Level: orUnknown(g.GetLevel()), LevelReason: g.GetLevelReason(), Backend: g.GetBackend(), Cgroup: g.GetCgroup(),
		PIDs: list(g.GetPids()), UserID: g.GetUserId(), PodUID: g.GetPodUid(), Container: g.GetContainer(),
		Health: orUnknown(g.GetHealth()), Profile: g.GetProfile(), Whole: g.GetWhole(),
		PodNamespace: g.GetPodNamespace(), PodName: g.GetPodName(), ContainerID: g.GetContainerId(),
		UsedBy: g.GetUsedBy(), EnforcedShares: []Share{}, CapSharedWith: g.GetCapSharedWith(), SharedCap: []Share{},
		Claims: g.GetClaims(),
		Compute: Compute{By: orUnknown(g.GetCompute().GetBy()), Reason: g.GetCompute().GetReason(),
			Priority: g.GetCompute().GetPriority()},
	}
	for _, f := range g.GetEnforcedShares() {
		out.EnforcedShares = append(out.EnforcedShares, Share{GPU: f.GetGpu(), MemoryBytes: f.GetMemoryBytes(),
			Percent: f.GetPercent(), Whole: f.GetWhole(), MIGProfile: f.GetMigProfile(), MIGStart: f.GetMigStart()})
	}
	for _, f := range g.GetSharedCap() {
		out.SharedCap = append(out.SharedCap, Share{GPU: f.GetGpu(), MemoryBytes: f.GetMemoryBytes(),
			Percent: f.GetPercent()})
	}
	for _, f := range g.GetShares() {
		out.GPUs = append(out.GPUs, f.GetGpu())
		out.Shares = append(out.Shares, Share{
			GPU: f.GetGpu(), MemoryBytes: f.GetMemoryBytes(), Percent: f.GetPercent(), Whole: f.GetWhole(),
			BurstBytes: f.GetBurstBytes(), MaxBurstBytes: f.GetMaxBurstBytes(),
			UsedBytes:  f.UsedBytes,
			MIGProfile: f.GetMigProfile(), MIGStart: f.GetMigStart(), Time: fromTime(f.GetTime()),
		})
	}
	return out
}

func fromTime(t *nodeapi.Time) *Time {
	if t == nil {
		return nil
	}
	return &Time{
		UsedPercent:    t.UsedPercent,
		ChargedSeconds: t.GetChargedSeconds(), Launches: t.GetLaunches(), LaunchesOverBudget: t.GetLaunchesOverBudget(),
		ThrottledSeconds: t.GetThrottledSeconds(),
	}
}

// list is s, or an empty list, which JSON shows as [] and not as null.
func list[T any](s []T) []T { return append([]T{}, s...) }

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

// supported is the answer of a backend that works.
const supported = "supported"

// works names the listed backends that work on the GPU.
func (g GPU) works() string {
	var out []string
	for _, b := range g.Backends {
		if b.Listed && b.Answer == supported {
			out = append(out, b.Name)
		}
	}
	return strings.Join(out, ",")
}

// whyNot says of each listed backend that does not work why.
func (g GPU) whyNot() []string {
	var out []string
	for _, b := range g.Backends {
		if b.Listed && b.Answer != supported {
			out = append(out, b.String())
		}
	}
	return out
}

// String is what is to be known of the backend, in a line.
func (b Backend) String() string {
	s := b.Name + " " + b.Answer
	if !b.Listed {
		s += ", not listed by the pool"
	}
	if b.Reason != "" {
		s += ": " + b.Reason
	}
	if b.Remedy != "" {
		s += "; " + b.Remedy
	}
	return s
}

// held is a grant's level, with the backend where the level does not name it.
func (g Grant) held() string {
	if g.Backend == "" || g.Backend == "none" || g.Backend == g.Level {
		return g.Level
	}
	return g.Level + " (" + g.Backend + ")"
}

// String is what holds a grant to its percent of GPU time, and by what rule or why nothing does.
func (c Compute) String() string {
	s := c.By
	if c.Reason != "" {
		s += ": " + c.Reason
	}
	if c.Priority != 0 {
		s += fmt.Sprintf(", priority %d", c.Priority)
	}
	return s
}

// times are the columns of a grant's GPU time, over its GPUs. They are the part of the last ten seconds that it used,
// how long launches waited for a budget, and how many ran past it.
func (g Grant) times() []string {
	var percents []string
	var waited float64
	var past uint64
	counted := false
	for _, f := range g.Shares {
		if f.Time == nil {
			continue
		}
		counted = true
		percents = append(percents, utilization(f.Time.UsedPercent))
		waited, past = waited+f.Time.ThrottledSeconds, past+f.Time.LaunchesOverBudget
	}
	if !counted {
		return []string{unknown, unknown, unknown}
	}
	return []string{strings.Join(percents, ","), strconv.FormatFloat(waited, 'f', 1, 64) + "s",
		strconv.FormatUint(past, 10)}
}
