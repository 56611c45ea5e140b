// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package shares converts the status of an agent to devices of Nomad, and the devices of a task to a request for
// kerf run. It is pure.
//
// Each GPU has one device for each whole GiB of its allocatable memory. A task requests devices of one GPU, and Nomad
// counts them.
package shares

import (
	"cmp"
	"slices"
	"strings"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
	"github.com/kerf-gpu/kerf/sharing"
)

// Node is what the plugin knows about the GPUs of this machine.
type Node struct {
	// DriverVersion is the version of the NVIDIA driver; empty if unknown.
	DriverVersion string
	// GPUs are in the order of their UUIDs.
	GPUs []GPU
}

// GPU is one physical GPU.
type GPU struct {
	UUID, Model string
	// PCI is the address on the bus, as domain:bus:device.function.
	PCI string
	// GiB is the allocatable memory, rounded down. It is 0 for a GPU that gives no shares.
	GiB int
	// Problem is the reason why Nomad must not place tasks on the GPU; empty if it may.
	Problem string
	// CapacityBytes and UsedBytes are nil if they are unknown.
	CapacityBytes, UsedBytes *uint64
}

// FromStatus returns the node as the agent reports it. A GPU of known that the agent does not report stays with a
// Problem. MIG instances are no GPUs.
func FromStatus(p *nodeapi.GetNodeResponse, known Node) Node {
	out := Node{DriverVersion: p.GetDriverVersion()}
	whole := wholeGPUs(p)
	for _, g := range p.GetGpus() {
		if ref, err := sharing.ParseGPURef(g.GetUuid()); err != nil || ref.IsInstance() {
			continue
		}
		out.GPUs = append(out.GPUs, GPU{
			UUID: g.GetUuid(), Model: g.GetModel(), PCI: g.GetPci(), GiB: allocatableGiB(g),
			Problem:       cmp.Or(notReady(p), problemOf(g, whole[g.GetUuid()])),
			CapacityBytes: g.CapacityBytes, UsedBytes: g.UsedBytes,
		})
	}
	for _, g := range known.GPUs {
		if !out.has(g.UUID) {
			g.Problem, g.UsedBytes = "the agent does not report this GPU: it is lost or excluded by the config", nil
			out.GPUs = append(out.GPUs, g)
		}
	}
	slices.SortFunc(out.GPUs, func(a, b GPU) int { return cmp.Compare(a.UUID, b.UUID) })
	return out
}

// Unreachable returns the known node with a Problem on each GPU, because the agent does not answer.
func Unreachable(known Node, reason string) Node {
	out := Node{DriverVersion: known.DriverVersion, GPUs: slices.Clone(known.GPUs)}
	for i := range out.GPUs {
		out.GPUs[i].Problem, out.GPUs[i].UsedBytes = reason, nil
	}
	return out
}

// SameDevices reports whether Nomad gets the same devices for both nodes. Usage makes no difference.
func (n Node) SameDevices(other Node) bool {
	return n.DriverVersion == other.DriverVersion && slices.EqualFunc(n.GPUs, other.GPUs, func(a, b GPU) bool {
		return a.UUID == b.UUID && a.Model == b.Model && a.PCI == b.PCI && a.GiB == b.GiB && a.Problem == b.Problem
	})
}

func (n Node) has(uuid string) bool {
	return slices.ContainsFunc(n.GPUs, func(g GPU) bool { return g.UUID == uuid })
}

// wholeGPUs are the UUIDs of the GPUs that one grant has alone.
func wholeGPUs(p *nodeapi.GetNodeResponse) map[string]bool {
	out := map[string]bool{}
	for _, g := range p.GetGrants() {
		for _, s := range g.GetShares() {
			if s.GetWhole() {
				out[s.GetGpu()] = true
			}
		}
	}
	return out
}

// allocatableGiB is the total memory of shares, as the ledger counts it.
func allocatableGiB(g *nodeapi.GPU) int {
	if g.CapacityBytes == nil || g.GetMig() {
		return 0
	}
	factor := sharing.Factor(min(g.GetMemoryOvercommitPercent(), uint32(sharing.MaxMemoryFactor)))
	usable := sharing.Bytes(g.GetCapacityBytes()).SubFloor(sharing.Bytes(g.GetReservedBytes()))
	return int(factor.Of(usable) / sharing.GiB) //nolint:gosec // no GPU has so much memory
}

func notReady(p *nodeapi.GetNodeResponse) string {
	switch {
	case p.GetReady():
		return ""
	case len(p.GetNotReady()) == 0:
		return "the agent is not ready"
	}
	return "the agent is not ready: " + strings.Join(p.GetNotReady(), "; ")
}

// problemOf is the reason why the GPU gives no shares now; empty if it does.
func problemOf(g *nodeapi.GPU, whole bool) string {
	switch {
	case g.GetHealth() != sharing.HealthOK.String():
		return strings.TrimSuffix("the GPU is "+cmp.Or(g.GetHealth(), "unknown")+": "+g.GetHealthReason(), ": ")
	case g.CapacityBytes == nil:
		return sharing.NoShares
	case g.GetMig():
		return "the GPU is in MIG mode"
	case whole:
		return "a grant has the whole GPU"
	case sharing.ShareLevel(sharing.ParseLevels(g.GetLevels())) < sharing.LevelReactive:
		return "no backend enforces shares on the GPU"
	case allocatableGiB(g) == 0:
		return "the GPU has less than 1 GiB of allocatable memory"
	}
	return ""
}
