// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package report reads the GPUs of a GPUNode, so that scheduler and simulator judge them by allocator.Fit as their
// agent does.
package report

import (
	"strings"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator"
)

// GPU reads a GPU on which so many grants are. What the report has too much of counts as much as there can be.
func GPU(g gpunode.GPU, grants int) allocator.GPUState {
	ref := Ref(g.UUID)
	capacity := Bytes(g.CapacityBytes)
	if g.SystemMemory {
		capacity = 0 // unknown, whatever the report has
	}
	usable := min(Bytes(g.AllocatableBytes), capacity)
	gpu := sharing.GPU{
		UUID: ref.UUID, Part: ref.GPU().Part, Index: g.Index, Model: g.Model,
		Hardware: sharing.Hardware{PCI: g.PCI, NUMA: -1, SystemMemory: g.SystemMemory}, MIG: g.MIG,
		Memory: capacity, Reserved: capacity - usable,
		HealthReason: g.HealthReason, Cordoned: g.Cordoned,
	}
	gpu.Overcommit = overcommit(g.Overcommit)
	if g.NUMANode != nil {
		gpu.NUMA = *g.NUMANode
	}
	if g.Cordoned != "" {
		gpu.HealthReason = "cordoned: " + g.Cordoned
	} else if g.Health == sharing.HealthOK.String() {
		gpu.Health = sharing.HealthOK
	}
	// Burst memory is free for a grant that needs it.
	free, err := Bytes(g.FreeBytes).Add(Bytes(g.BurstBytes))
	if err != nil || free > gpu.Bookable() {
		free = gpu.Bookable()
	}
	s := allocator.GPUState{GPU: gpu, FreeMemory: free, FreePercent: min(Percent(g.FreePercent), gpu.BookablePercent()),
		InUse: grants > 0 || g.Whole}
	if g.Whole {
		s.FreeMemory, s.FreePercent = 0, 0
	}
	s.ShareCount, s.MaxShares, s.LevelReason = grants, g.MaxShares, g.LevelReason
	if g.Mode != "" {
		s.Give(strings.TrimPrefix(g.Mode, gpunode.ModeExcluded), g.Mode == gpunode.ModeShared,
			g.Mode == gpunode.ModeWhole)
	}
	if l, err := sharing.ParseLevel("minEnforcement", g.MinEnforcement); err == nil {
		s.MinLevel = l
	}
	s.Levels = sharing.ParseLevels(g.Levels)
	return s
}

// Ref reads the identity of a GPU or shared MIG instance. What Kerf did not write is a GPU that no plan can name.
func Ref(s string) sharing.GPURef {
	ref, err := sharing.ParseGPURef(s)
	if err != nil {
		return sharing.GPURef{UUID: sharing.GPUID(s)}
	}
	return ref
}

// overcommit reads how much more is given than there is, as far as that may be meant.
func overcommit(o *gpunode.Overcommit) sharing.Overcommit {
	if o == nil {
		return sharing.Overcommit{}
	}
	return sharing.Overcommit{
		Memory:  sharing.Factor(max(0, min(o.MemoryPercent, int(sharing.MaxMemoryFactor)))),
		Compute: sharing.Factor(max(0, min(o.ComputePercent, int(sharing.MaxComputeFactor)))),
	}
}

// Bytes reads an amount of memory of a report; a negative one is 0.
func Bytes(n int64) sharing.Bytes { return sharing.Bytes(max(0, n)) }

// Percent reads a percentage of a report; what is below 0 is nothing.
func Percent(n int) sharing.Percent {
	return sharing.Percent(max(0, min(n, 100*sharing.MaxGPUs)))
}
