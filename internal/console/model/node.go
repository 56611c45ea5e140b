// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/sharing"
)

// States of a node.
const (
	StateReady    = "ready"
	StateNotReady = "not ready"
	StateSilent   = "not heard from"
	StateCordoned = "cordoned"
)

// Seen is what is known of a node.
type Seen struct {
	Name string
	// Closed nodes take no new pods; the agents of Silent ones have not renewed their heartbeat.
	Closed, Silent bool
	Status         gpunode.Status
	// Usage has measured values by GPU; nil if there are none.
	Usage map[string]Usage
}

// Usage is what was measured on a GPU.
type Usage struct {
	Used        *uint64
	Utilization *uint32
	// Shares has the used bytes by grant.
	Shares map[string]uint64
}

// NodeOf is the node as the console shows it. Typical is what usually arrives, for the fragmentation.
func NodeOf(s Seen, typical Typical) Node {
	n := Node{Name: s.Name, Pool: s.Status.Pool, Driver: s.Status.DriverVersion, Agent: s.Status.AgentVersion,
		GPUs: []GPU{}}
	n.State, n.Reason = stateOf(s)
	if c := s.Status.Config; c != nil {
		n.Config.SHA256, n.Config.Errors = c.SHA256, c.Errors
		for _, p := range c.Pending {
			n.Config.Pending = append(n.Config.Pending, fmt.Sprintf("GPU %s: %s waits for %s", p.GPU,
				strings.Join(p.Settings, ", "), strings.Join(p.BlockedBy, ", ")))
		}
	}
	shares := sharesOf(s)
	for _, g := range s.Status.GPUs {
		out := gpuOf(g, shares[g.UUID], typical)
		u := s.Usage[g.UUID]
		out.Memory.Used, out.Utilization = u.Used, u.Utilization
		n.GPUs = append(n.GPUs, out)
	}
	slices.SortStableFunc(n.GPUs, func(a, b GPU) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), strings.Compare(a.UUID, b.UUID))
	})
	return n
}

func stateOf(s Seen) (state, reason string) {
	ready := s.Status.Condition(gpunode.ConditionReady)
	switch {
	case s.Silent:
		return StateSilent, "the agent has not renewed its heartbeat"
	case ready.Status != gpunode.True:
		return StateNotReady, ready.Message
	case s.Closed:
		return StateCordoned, "the node is cordoned or not ready"
	}
	return StateReady, ""
}

// sharesOf are the shares of the node's grants by GPU.
func sharesOf(s Seen) map[string][]Share {
	out := map[string][]Share{}
	for _, g := range s.Status.Grants {
		for _, f := range g.Shares {
			one := Share{Grant: g.ID, Namespace: g.Namespace, Pod: g.Pod, Container: g.Container, Profile: g.Profile,
				State: g.State, Level: g.Level, Memory: f.MemoryBytes, Percent: f.Percent, Whole: f.Whole,
				MIG: f.MIGProfile, Start: f.MIGStart}
			if used, ok := s.Usage[f.GPU].Shares[g.ID]; ok {
				one.Used = &used
			}
			out[f.GPU] = append(out[f.GPU], one)
		}
	}
	for _, list := range out {
		slices.SortStableFunc(list, func(a, b Share) int {
			return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(b.Memory, a.Memory),
				strings.Compare(a.Namespace+"/"+a.Pod, b.Namespace+"/"+b.Pod), strings.Compare(a.Grant, b.Grant))
		})
	}
	return out
}

func gpuOf(g gpunode.GPU, shares []Share, typical Typical) GPU {
	out := GPU{UUID: g.UUID, Index: g.Index, Model: g.Model, Health: cmp.Or(g.Health, sharing.HealthUnknown.String()),
		Cordoned: g.Cordoned != "", Mode: g.Mode, Shares: shares, Levels: g.Levels,
		Memory: Memory{Unknown: g.SystemMemory, Capacity: g.CapacityBytes, Allocatable: g.AllocatableBytes,
			Free: g.FreeBytes, FreePercent: g.FreePercent}}
	out.Problem = problemOf(g)
	if m := g.MIGState; m != nil && g.MIG {
		out.MIG = &MIG{Slices: m.MemorySlices}
		for _, i := range m.Instances {
			out.MIG.Instances = append(out.MIG.Instances, Instance{Profile: i.Profile, Start: i.Start,
				Slices: i.MemorySlices, Managed: i.Managed, Free: i.Managed && i.Grant == ""})
		}
	}
	if len(shares) > 0 && out.Problem == "" {
		out.Fragmentation = typical.misfits(g, len(shares))
	}
	return out
}

// problemOf says why the GPU takes no new grant.
func problemOf(g gpunode.GPU) string {
	switch {
	case g.Health != sharing.HealthOK.String():
		return strings.TrimSuffix(cmp.Or(g.Health, "unknown")+": "+g.HealthReason, ": ")
	case g.Cordoned != "":
		return "cordoned: " + g.Cordoned
	case g.MIGState != nil && g.MIGState.Error != "":
		return "MIG: " + g.MIGState.Error
	}
	return ""
}
