// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package gpunode makes the status of a GPUNode of an agent's books. It is pure: equal books give equal statuses, so that
// who compares the last one that was written writes only what has changed. It asks nobody and writes nowhere.
package gpunode

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	api "github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/node/status"
)

// mostReasons is how many sentences of NotReady are told: an object has its limits, and the first say enough.
const mostReasons = 16

// mostUnplaced is how many pods without room are told of, for the same reason, and mostEnding how many that end for a fault.
const (
	mostUnplaced = 128
	mostEnding   = 128
)

// mostDocument is the largest document that is told, and hashShown how much of its hash is in a column.
const (
	mostDocument = 256 << 10
	hashShown    = 12
)

// Of makes the status.
func Of(b status.Books) api.Status {
	s := api.Status{
		AgentVersion: b.AgentVersion, DriverVersion: b.DriverVersion, Pool: b.Pool,
		Ready: len(b.PodsNotReady) == 0, NotReady: b.PodsNotReady[:min(len(b.PodsNotReady), mostReasons)],
	}
	s.Config = configOf(b)
	cliques := cliquesOf(b.GPUs)
	var free, largest sharing.Bytes
	levels := map[sharing.Level]bool{}
	for _, g := range b.GPUs {
		s.GPUs = append(s.GPUs, gpu(g, cliques))
		largest = max(largest, min(g.FreeMemory, g.GPU.Usable())) // no piece is larger than its GPU, however much is given of it
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
		s.Claims = append(s.Claims, claim(g))
	}
	slices.SortFunc(s.Claims, func(a, b api.Claim) int { return cmp.Compare(a.ID, b.ID) })
	s.Fingerprint = api.Fingerprint(s.Claims)
	for _, u := range b.Unplaced[:min(len(b.Unplaced), mostUnplaced)] {
		s.Unplaced = append(s.Unplaced, api.Unplaced{PodUID: u.Ref.PodUID, Namespace: u.Ref.Namespace, Pod: u.Ref.Pod, Reason: u.Why})
	}
	for _, e := range b.Ending[:min(len(b.Ending), mostEnding)] {
		s.Ending = append(s.Ending, api.Ending{PodUID: e.Ref.PodUID, Namespace: e.Ref.Namespace, Pod: e.Ref.Pod, Reason: e.Why, Since: e.Since.UTC().Format(time.RFC3339)})
	}
	s.Summary.GPUs, s.Summary.Claims = len(s.GPUs), len(s.Claims)
	s.Summary.Config = inShort(s.Config)
	s.Summary.Free, s.Summary.LargestFree = free.String(), largest.String()
	strongest := slices.Sorted(maps.Keys(levels))
	slices.Reverse(strongest)
	s.Summary.Levels = strings.Join(names(strongest), ",")
	return s
}

// configOf is nil where there is nothing to tell.
func configOf(b status.Books) *api.Config {
	if b.Config.SHA256 == "" && len(b.ConfigErrors) == 0 && len(b.Waiting) == 0 && len(b.Excluded) == 0 {
		return nil
	}
	c := &api.Config{SHA256: b.Config.SHA256, Mistakes: b.ConfigErrors[:min(len(b.ConfigErrors), mostReasons)]}
	for _, w := range b.Waiting {
		c.Waiting = append(c.Waiting, api.ConfigWaiting{GPU: string(w.GPU), What: w.What, For: w.For, Has: w.Has})
	}
	for _, g := range b.Excluded {
		c.Excluded = append(c.Excluded, api.Excluded{GPU: g.Ref().String(), Index: g.Index, Model: g.Model})
	}
	if b.Config.SHA256 != "" && len(b.ConfigErrors) > 0 && len(b.Document) <= mostDocument {
		c.Document = b.Document
	}
	return c
}

// inShort is the hash in force as a column shows it.
func inShort(c *api.Config) string {
	if c == nil {
		return ""
	}
	words := []string{}
	if c.SHA256 != "" {
		words = append(words, c.SHA256[:min(len(c.SHA256), hashShown)])
	}
	if len(c.Mistakes) > 0 {
		words = append(words, "refused")
	}
	if len(c.Waiting) > 0 {
		words = append(words, "waits")
	}
	return strings.Join(words, ",")
}

func gpu(g status.BookedGPU, cliques map[sharing.GPUID]int) api.GPU {
	out := api.GPU{
		UUID: g.GPU.Ref().String(), Index: g.GPU.Index, Model: g.GPU.Model, PCI: g.GPU.PCI,
		MemoryBytes: uint64(g.GPU.Memory), UsableBytes: uint64(g.GPU.Usable()),
		FreeBytes: uint64(g.FreeMemory), FreePercent: int(g.FreePercent),
		GrantedBytes: uint64(g.HeldMemory), GrantedPercent: int(g.HeldPercent), LentBytes: uint64(g.LentMemory),
		Whole: g.Whole, MIG: g.GPU.MIG, TurnsTo: string(g.TurnsTo), Health: g.GPU.Health.String(), HealthReason: g.GPU.HealthReason, Cordoned: g.GPU.Cordoned, Levels: names(g.Levels),
	}
	if g.GPU.Product != 0 {
		out.Product = config.PCIName(g.GPU.Product)
	}
	if g.GPU.Board != 0 {
		out.Board = config.PCIName(g.GPU.Board)
	}
	out.MaxSharers = g.Settings.Sharers
	out.LevelReason = g.LevelReason
	if g.MinLevel != sharing.LevelUnknown {
		out.MinEnforcement = g.MinLevel.String()
	}
	if o := g.GPU.Overcommit; o.Memory.More() || o.Compute.More() {
		out.Overcommit = &api.Overcommit{MemoryPercent: int(o.Memory), ComputePercent: int(o.Compute)}
	}
	switch {
	case g.Settings.Exclude:
		out.Gives = api.GivesNothing
	case g.Settings.Mode != config.ModeAuto:
		out.Gives = g.Settings.Mode.String()
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

// migState is nil for a GPU that cannot be cut.
func migState(s mig.State) *api.MIGState {
	if !s.Able {
		return nil
	}
	out := &api.MIGState{Units: s.Units, Profiles: s.Profiles, Fixed: s.Fixed, Waits: s.Waits, Trouble: s.Trouble}
	for _, p := range s.Geometry {
		out.Geometry = append(out.Geometry, api.MIGProfile{
			Name: p.Name, ID: p.ID, Compute: p.Compute, MemoryBytes: uint64(p.Memory), Most: p.Most, Size: p.Size, Starts: p.Starts,
			Decoders: p.Engines.Decoders, Encoders: p.Engines.Encoders, JPEGs: p.Engines.JPEGs, OFAs: p.Engines.OFAs,
		})
	}
	for _, profile := range slices.Sorted(maps.Keys(s.Most)) {
		out.Most = append(out.Most, api.MIGCount{Profile: profile, Count: s.Most[profile]})
	}
	for _, p := range s.Instances {
		out.Instances = append(out.Instances, api.MIGInstance{Profile: p.Profile, Start: p.Start, Size: p.Size, Foreign: !p.Ours, Ready: p.Ready, Claim: p.Grant, For: p.Holder, Waits: p.Waits})
	}
	return out
}

func claim(g status.Grant) api.Claim {
	o := g.Claim.Owner
	c := api.Claim{
		ID: string(g.Claim.ID), PodUID: o.PodUID, Namespace: o.Namespace, Pod: o.PodName, Container: o.Container,
		Profile: g.Claim.Request.Profile, InUse: g.Lease != nil, Level: g.Level.String(), Fragments: []api.Fragment{},
	}
	if g.Backend != 0 {
		c.Backend = g.Backend.String()
	}
	for _, f := range g.Claim.Placement {
		c.Fragments = append(c.Fragments, api.Fragment{GPU: f.GPU.String(), MemoryBytes: uint64(f.Memory), Percent: int(f.Percent), Whole: f.Whole, MIGProfile: f.MIG.Profile, MIGStart: f.MIG.Start})
	}
	return c
}

// cliquesOf numbers the groups of GPUs that reach each other over NVLink, directly or over others, from 0 in the order of
// the GPUs.
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
