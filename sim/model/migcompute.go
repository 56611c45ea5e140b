// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"slices"

	"github.com/kerf-gpu/kerf/sim/wire"
)

const (
	// Whole as a number of slices means all of a GPU instance.
	Whole = 0
	// maxComputes is how many ids of compute instances a GPU instance has, from 0.
	maxComputes = 8
	// anyCompute stands for each compute instance of a GPU instance.
	anyCompute = wire.NoInstance
)

// Compute is a compute instance: some of the multiprocessors of a GPU instance, whose memory all in it share.
type Compute struct {
	// ID is from 0 in its GPU instance. The id of one that was destroyed is given again.
	ID uint64
	// Start and Slices are the compute slices of the GPU instance that it has.
	Start, Slices int
	// Made tells those apart that had the same ids; 0 is what was there at the start.
	Made uint64
}

// device is how the libraries name the MIG device of a compute instance: its GPU instance's id, and its own above it.
func device(gi, ci uint64) uint64 { return gi | ci<<wire.ComputeShift }

// computeStarts are where a compute instance of so many slices may begin in a GPU instance of that size; none: it has
// no such profile.
func computeStarts(size, slices int) []int {
	var starts []int
	if slices < 1 || size == 4 && slices == 3 { // 4g has 1c, 2c and 4c
		return nil
	}
	step := 1
	for step < min(slices, 4) {
		step *= 2
	}
	for s := 0; s+slices <= size && (slices < 5 || slices == size); s += step {
		starts = append(starts, s)
	}
	return starts
}

// CreateCI makes a compute instance of so many slices, or Whole, in a GPU instance and returns its id. start is a slice
// of the GPU instance or AnyStart, and then the lowest place that is free is taken. Errors: Invalid (no such place),
// NotSupported (also: no such profile), NoPermission, NotFound, Insufficient (there is no room), Lost.
func (m *Model) CreateCI(index int, root bool, gi uint64, size, start int) (uint64, error) {
	_, in, err := m.instance(index, root, gi)
	if err != nil {
		return 0, err
	}
	if size == Whole {
		size = in.Profile.Slices
	}
	starts := computeStarts(in.Profile.Slices, size)
	switch {
	case len(starts) == 0:
		return 0, wire.NotSupported
	case start != AnyStart && !slices.Contains(starts, start):
		return 0, wire.Invalid
	case start != AnyStart:
		starts = []int{start}
	}
	for _, s := range starts {
		if slices.ContainsFunc(in.Computes, func(c Compute) bool { return s < c.Start+c.Slices && c.Start < s+size }) {
			continue
		}
		for id := range uint64(maxComputes) {
			if slices.ContainsFunc(in.Computes, func(c Compute) bool { return c.ID == id }) {
				continue
			}
			m.lastID++
			in.Computes = append(slices.Clip(in.Computes), Compute{ID: id, Start: s, Slices: size, Made: m.lastID})
			slices.SortFunc(in.Computes, func(a, b Compute) int { return cmp.Compare(a.ID, b.ID) })
			return id, nil
		}
	}
	return 0, wire.Insufficient
}

// DestroyCI ends a compute instance. Errors: Invalid, NotSupported, NoPermission, NotFound, InUse (a process holds
// something on it), Lost.
func (m *Model) DestroyCI(index int, root bool, gi, ci uint64) error {
	g, in, err := m.instance(index, root, gi)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(in.Computes, func(c Compute) bool { return c.ID == ci })
	switch {
	case i < 0:
		return wire.NotFound
	case m.runsOn(g, gi, ci):
		return wire.InUse
	}
	in.Computes = slices.Delete(slices.Clone(in.Computes), i, i+1)
	return nil
}

// runsOn reports whether a process holds something on a compute instance.
func (m *Model) runsOn(g *gpu, gi, ci uint64) bool {
	part := int(gi) - 1 // #nosec G115 -- an id that is there
	on := func(p int, by uint64) bool { return p == part && (ci == anyCompute || by == ci) }
	for _, c := range m.clients {
		if c.gpu != g {
			continue
		}
		for _, h := range c.contexts {
			if on(h.part, h.ci) {
				return true
			}
		}
		for _, a := range c.allocs {
			if on(a.part, a.ci) {
				return true
			}
		}
		for _, imported := range c.imports {
			if on(imported.part, imported.by) {
				return true
			}
		}
	}
	return false
}

// part returns the index in gpu.used of the GPU instance of a MIG device, and the compute instance's id. 0 is the first
// device or, without MIG mode, the GPU. Nothing runs on an instance without a compute instance.
func (g *gpu) part(of uint64) (part int, ci uint64, err error) {
	if !g.hw.MIG && of == 0 {
		return 0, 0, nil // the whole GPU
	}
	for i, in := range g.instances {
		if in == nil {
			continue
		}
		for _, c := range in.Computes {
			if of == 0 || of == device(in.GI, c.ID) {
				return i, c.ID, nil
			}
		}
	}
	return 0, 0, wire.NotFound
}
