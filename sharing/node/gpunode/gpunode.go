// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package gpunode makes the status of a GPUNode from the state of an agent. It is pure: equal states give equal
// statuses,
// so that the publisher writes only changes.
package gpunode

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	api "github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/node/status"
)

// mostReasons is how many reasons and errors are in the status: an object has a largest size.
const mostReasons = 16

// mostUnplaced is the number of pending pods that are reported, for the same reason, and mostEnding that of pods that
// end for a fault.
const (
	mostUnplaced = 128
	mostEnding   = 128
)

// mostDocument is the largest config text that is reported, and hashShown how much of its hash is in a column.
const (
	mostDocument = 256 << 10
	hashShown    = 12
)

// Of makes the status.
func Of(b status.LedgerState) api.Status {
	s := api.Status{
		AgentVersion: b.AgentVersion, DriverVersion: b.DriverVersion, Pool: b.Pool,
	}
	s.Config, s.Conditions = configOf(b), conditionsOf(b)
	cliques := cliquesOf(b.GPUs)
	var free, largest sharing.Bytes
	levels := map[sharing.Level]bool{}
	for _, g := range b.GPUs {
		s.GPUs = append(s.GPUs, gpu(g, cliques))
		// no share is larger than its GPU, whatever the overcommit ratio
		largest = max(largest, min(g.FreeMemory, g.GPU.Usable()))
		if sum, err := free.Add(g.FreeMemory); err == nil {
			free = sum
		}
		for _, l := range g.Levels {
			levels[l] = true
		}
		if g.GPU.Health != sharing.HealthOK {
			s.Summary.Unhealthy++
		}
	}
	for _, g := range b.Grants {
		s.Grants = append(s.Grants, grant(g))
	}
	slices.SortFunc(s.Grants, func(a, b api.Grant) int { return cmp.Compare(a.ID, b.ID) })
	s.Fingerprint = api.Fingerprint(s.Grants)
	for _, u := range b.Unplaced[:min(len(b.Unplaced), mostUnplaced)] {
		s.PendingPods = append(s.PendingPods, api.PendingPod{PodUID: u.Ref.PodUID, Namespace: u.Ref.Namespace,
			Pod:    u.Ref.Pod,
			Reason: u.Reason})
	}
	for _, e := range b.Ending[:min(len(b.Ending), mostEnding)] {
		s.TerminatingPods = append(s.TerminatingPods, api.TerminatingPod{PodUID: e.Ref.PodUID,
			Namespace: e.Ref.Namespace, Pod: e.Ref.Pod,
			Reason: e.Reason, Since: e.Since.UTC().Format(time.RFC3339)})
	}
	s.Summary.GPUs, s.Summary.Grants = len(s.GPUs), len(s.Grants)
	s.Summary.Config = inShort(s.Config)
	s.Summary.Free, s.Summary.LargestFree = free.String(), largest.String()
	if len(b.GPUs) > 0 && !slices.ContainsFunc(b.GPUs, func(g status.BookedGPU) bool { return !g.GPU.SystemMemory }) {
		s.Summary.Free, s.Summary.LargestFree = api.Unknown, api.Unknown
	}
	strongest := slices.Sorted(maps.Keys(levels))
	slices.Reverse(strongest)
	s.Summary.Levels = strings.Join(names(strongest), ",")
	return s
}

// configOf is nil where there is nothing to tell.
func configOf(b status.LedgerState) *api.Config {
	if b.Config.SHA256 == "" && len(b.ConfigErrors) == 0 && len(b.Waiting) == 0 && len(b.Excluded) == 0 {
		return nil
	}
	c := &api.Config{SHA256: b.Config.SHA256, Errors: b.ConfigErrors[:min(len(b.ConfigErrors), mostReasons)]}
	for _, w := range b.Waiting {
		c.Pending = append(c.Pending, api.PendingSettings{GPU: string(w.GPU), Settings: w.What, BlockedBy: w.For,
			Current: w.Has})
	}
	for _, g := range b.Excluded {
		c.Excluded = append(c.Excluded, api.Excluded{GPU: g.Ref().String(), Index: g.Index, Model: g.Model})
	}
	if b.Config.SHA256 != "" && len(b.ConfigErrors) > 0 && len(b.ConfigText) <= mostDocument {
		c.LastKnownGood = b.ConfigText
	}
	return c
}

// inShort is the hash of the applied config as a column shows it.
func inShort(c *api.Config) string {
	if c == nil {
		return ""
	}
	words := []string{}
	if c.SHA256 != "" {
		words = append(words, c.SHA256[:min(len(c.SHA256), hashShown)])
	}
	if len(c.Errors) > 0 {
		words = append(words, "rejected")
	}
	if len(c.Pending) > 0 {
		words = append(words, "pending")
	}
	return strings.Join(words, ",")
}

func gpu(g status.BookedGPU, cliques map[sharing.GPUID]int) api.GPU {
	out := api.GPU{
		UUID: g.GPU.Ref().String(), Index: g.GPU.Index, Model: g.GPU.Model, PCI: g.GPU.PCI,
		SystemMemory:  g.GPU.SystemMemory,
		CapacityBytes: bytesOf(g.GPU.Memory), AllocatableBytes: bytesOf(g.GPU.Usable()),
		FreeBytes: bytesOf(g.FreeMemory), FreePercent: int(g.FreePercent),
		GrantedBytes: bytesOf(g.GrantedMemory), GrantedPercent: int(g.GrantedPercent),
		BurstBytes: bytesOf(g.BurstMemory),
		Whole:      g.Whole, MIG: g.GPU.MIG, SwitchableTo: string(g.SwitchableTo), Health: g.GPU.Health.String(),
		HealthReason: g.GPU.HealthReason, Cordoned: g.GPU.Cordoned, Levels: names(g.Levels),
	}
	if g.GPU.Product != 0 {
		out.Product = config.PCIName(g.GPU.Product)
	}
	if g.GPU.Board != 0 {
		out.Board = config.PCIName(g.GPU.Board)
	}
	out.MaxShares = g.Settings.MaxSharesPerGPU
	out.LevelReason = g.LevelReason
	if g.MinLevel != sharing.LevelUnknown {
		out.MinEnforcement = g.MinLevel.String()
	}
	if o := g.GPU.Overcommit; o.Memory.More() || o.Compute.More() {
		out.Overcommit = &api.Overcommit{MemoryPercent: int(o.Memory), ComputePercent: int(o.Compute)}
	}
	switch {
	case g.Settings.Excluded:
		out.Mode = api.ModeExcluded
	case g.Settings.FrontEnd == sharing.FrontEndDRA:
		out.Mode = api.ModeDRA
	case g.Settings.Mode != config.ModeAuto:
		out.Mode = g.Settings.Mode.String()
	}
	out.MIGState = migState(g.MIG)
	if g.GPU.NUMA >= 0 {
		out.NUMANode = &g.GPU.NUMA
	}
	if n, ok := cliques[g.GPU.UUID]; ok && !g.GPU.Ref().IsInstance() {
		out.NVLinkClique = &n
	}
	return out
}

// migState is nil for a GPU without MIG support.
func migState(s mig.State) *api.MIGState {
	if !s.Able {
		return nil
	}
	out := &api.MIGState{MemorySlices: s.Units, Profiles: s.Profiles, LayoutFromPool: s.Fixed,
		PendingReason: s.PendingReason,
		Error:         s.Error}
	for _, p := range s.Geometry {
		out.Geometry = append(out.Geometry, api.MIGProfile{
			Name: p.Name, ID: p.ID, Compute: p.Compute, MemoryBytes: bytesOf(p.Memory), MaxInstances: p.MaxInstances,
			MemorySlices:    p.Size,
			PlacementStarts: p.Starts,
			Decoders:        p.Engines.Decoders, Encoders: p.Engines.Encoders, JPEGs: p.Engines.JPEGs,
			OFAs: p.Engines.OFAs,
		})
	}
	for _, profile := range slices.Sorted(maps.Keys(s.MaxInstances)) {
		out.MaxInstances = append(out.MaxInstances, api.MIGCount{Profile: profile, Count: s.MaxInstances[profile]})
	}
	for _, p := range s.Instances {
		out.Instances = append(out.Instances, api.MIGInstance{Profile: p.Profile, Start: p.Start, MemorySlices: p.Size,
			Managed: p.Managed, Ready: p.Ready, Grant: p.Grant, RequestedBy: p.Owner, PendingReason: p.PendingReason})
	}
	return out
}

func grant(g status.Grant) api.Grant {
	o := g.Owner
	c := api.Grant{
		ID: string(g.ID), PodUID: o.PodUID, Namespace: o.Namespace, Pod: o.PodName, Container: o.Container,
		Profile: g.Request.Profile, State: g.StateName(), Level: g.Level.String(), Shares: []api.Share{},
	}
	if g.Backend != 0 {
		c.Backend = g.Backend.String()
	}
	for _, f := range g.Placement {
		c.Shares = append(c.Shares, api.Share{GPU: f.GPU.String(), MemoryBytes: bytesOf(f.Memory),
			Percent: int(f.Percent), Whole: f.Whole, MIGProfile: f.MIG.Profile, MIGStart: f.MIG.Start})
	}
	return c
}

// bytesOf is an amount as the API writes it.
func bytesOf(b sharing.Bytes) int64 {
	return int64(min(b, math.MaxInt64)) // #nosec G115 -- bounded
}

// cliquesOf numbers the groups of GPUs that reach each other over NVLink, directly or over others, from 0 in the order
// of the GPUs.
func cliquesOf(gpus []status.BookedGPU) map[sharing.GPUID]int {
	peers := map[sharing.GPUID][]sharing.GPUID{}
	for _, g := range gpus {
		for _, p := range g.GPU.NVLinks {
			peers[g.GPU.UUID] = append(peers[g.GPU.UUID], p)
			peers[p] = append(peers[p], g.GPU.UUID)
		}
	}
	out := map[sharing.GPUID]int{}
	next := 0
	for _, g := range gpus {
		if _, seen := out[g.GPU.UUID]; seen || len(peers[g.GPU.UUID]) == 0 {
			continue
		}
		for todo := []sharing.GPUID{g.GPU.UUID}; len(todo) > 0; {
			one := todo[0]
			todo = todo[1:]
			if _, seen := out[one]; seen {
				continue
			}
			out[one] = next
			todo = append(todo, peers[one]...)
		}
		next++
	}
	return out
}

func names(levels []sharing.Level) []string {
	var out []string
	for _, l := range levels {
		out = append(out, l.String())
	}
	return out
}
