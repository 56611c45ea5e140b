// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/machine"
	"github.com/kerf-gpu/kerf/sim/wire"
)

// maxInstances is past the instances of any GPU: their ids are from 1 on, and each has a block of capability numbers.
const maxInstances = CapBlocks - 1

// AnyStart lets the driver choose where an instance begins.
const AnyStart = -1

// CapBlocks is how many blocks of capability numbers a GPU has: one for each id that drivers give GPU instances, from
// 0.
const CapBlocks = 15

// Instance is a MIG GPU instance, with the compute instances in it.
type Instance struct {
	// GI is its id, from 1. The id of one that was destroyed is given again.
	GI uint64
	machine.Instance
	// Block says which of the GPU's blocks of capability numbers are its own. That of an instance with an id that was
	// given before is another one than the last time, and those that were given back are given to others.
	Block int
	// Computes are by id, none at first.
	Computes []Compute
}

// Instances returns a GPU's MIG instances by id. Errors: Invalid, NotSupported (a GPU that cannot do MIG), Lost.
func (m *Model) Instances(index int) ([]Instance, error) {
	g, err := m.gpu(index)
	switch {
	case err != nil:
		return nil, err
	case g.hw.Model.MaxMIG == 0:
		return nil, wire.NotSupported
	}
	var list []Instance
	for _, in := range g.instances {
		if in != nil {
			list = append(list, *in)
		}
	}
	return list, nil
}

// CreateGI makes a GPU instance of the profile with that id and returns its own id; root says whether the caller is
// root. start is a memory slice or AnyStart, and then the lowest place that is free is taken. Errors: Invalid (no
// such GPU, profile or place), NotSupported (not in MIG mode), NoPermission, Insufficient (there is no room), Lost.
func (m *Model) CreateGI(index int, root bool, profile uint64, start int) (uint64, error) {
	g, err := m.partitionable(index, root)
	if err != nil {
		return 0, err
	}
	i := slices.IndexFunc(g.hw.Model.Profiles, func(p machine.Profile) bool { return p.ID == profile })
	if i < 0 {
		return 0, wire.Invalid
	}
	p := g.hw.Model.Profiles[i]
	starts := p.Starts
	if start != AnyStart {
		if !slices.Contains(starts, start) {
			return 0, wire.Invalid
		}
		starts = []int{start}
	}
	for _, s := range starts {
		if g.hw.Fits(p, s) {
			return g.create(machine.Instance{Profile: p, Start: s})
		}
	}
	return 0, wire.Insufficient
}

// create gives an instance the lowest id that is free.
func (g *gpu) create(in machine.Instance) (uint64, error) {
	slot := slices.Index(g.instances, nil)
	if slot < 0 {
		if slot = len(g.instances); slot == maxInstances {
			return 0, wire.Insufficient
		}
		g.instances, g.capacity, g.used = append(g.instances, nil), append(g.capacity, 0), append(g.used, 0)
	}
	id := uint64(slot) + 1 // #nosec G115 -- an index
	g.instances[slot] = &Instance{GI: id, Instance: in, Block: g.block(id)}
	g.capacity[slot] = in.Profile.Memory
	g.recount()
	return id, nil
}

// block takes the lowest free block of capability numbers, except the one of the last instance with the id. A driver
// does not promise that an instance keeps its numbers when it is created again. Another instance may get the old ones.
func (g *gpu) block(gi uint64) int {
	last, again := g.blocks[gi]
	for b := range CapBlocks {
		taken := slices.ContainsFunc(g.instances, func(in *Instance) bool { return in != nil && in.Block == b })
		if !taken && (!again || b != last) {
			g.blocks[gi] = b
			return b
		}
	}
	return int(gi) % CapBlocks // #nosec G115 -- not reached: a GPU has fewer instances than blocks
}

// DestroyGI ends a GPU instance. Errors: Invalid, NotSupported, NoPermission, NotFound, InUse (it has a compute
// instance), Lost.
func (m *Model) DestroyGI(index int, root bool, gi uint64) error {
	g, in, err := m.instance(index, root, gi)
	switch {
	case err != nil:
		return err
	case len(in.Computes) > 0 || m.runsOn(g, gi, anyCompute):
		return wire.InUse
	}
	g.instances[gi-1], g.capacity[gi-1] = nil, sharing.Bytes(0)
	g.recount()
	return nil
}

// partitionable returns a GPU in MIG mode whose instances the caller may create and destroy.
func (m *Model) partitionable(index int, root bool) (*gpu, error) {
	g, err := m.gpu(index)
	switch {
	case err != nil:
		return nil, err
	case !g.hw.MIG:
		return nil, wire.NotSupported
	case !root:
		return nil, wire.NoPermission
	}
	return g, nil
}

func (m *Model) instance(index int, root bool, gi uint64) (*gpu, *Instance, error) {
	g, err := m.partitionable(index, root)
	switch {
	case err != nil:
		return nil, nil, err
	case gi == 0 || gi > uint64(len(g.instances)) || g.instances[gi-1] == nil:
		return nil, nil, wire.NotFound
	}
	return g, g.instances[gi-1], nil
}

// recount brings what the hardware shows in line with the instances.
func (g *gpu) recount() {
	g.hw.Instances = nil
	for _, in := range g.instances {
		if in != nil {
			g.hw.Instances = append(g.hw.Instances, in.Instance)
		}
	}
}
