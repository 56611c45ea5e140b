// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"slices"

	"github.com/kerf-gpu/kerf/internal/gpusim/machine"
	"github.com/kerf-gpu/kerf/internal/gpusim/wire"
	"github.com/kerf-gpu/kerf/sharing"
)

// maxInstances is past the instances of any GPU; ids are below it, since the libraries keep a handle for each.
const maxInstances = 31

// AnyStart lets the driver choose where an instance begins.
const AnyStart = -1

// Instance is a MIG GPU instance, with the compute instance in it.
type Instance struct {
	// GI is its id, from 1. The id of one that was destroyed is given again.
	GI uint64
	machine.Instance
	// Compute is true when it has its compute instance, whose id is 0 and which takes all of it.
	Compute bool
	// Made tells compute instances apart that had the same ids; 0 is what was there at the start.
	Made uint64
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
	g, err := m.cuttable(index, root)
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
			return g.cut(machine.Instance{Profile: p, Start: s})
		}
	}
	return 0, wire.Insufficient
}

// cut gives an instance the lowest id that is free.
func (g *gpu) cut(in machine.Instance) (uint64, error) {
	slot := slices.Index(g.instances, nil)
	if slot < 0 {
		if slot = len(g.instances); slot == maxInstances {
			return 0, wire.Insufficient
		}
		g.instances, g.capacity, g.used = append(g.instances, nil), append(g.capacity, 0), append(g.used, 0)
	}
	id := uint64(slot) + 1 // #nosec G115 -- an index
	g.instances[slot] = &Instance{GI: id, Instance: in}
	g.capacity[slot] = in.Profile.Memory
	g.recount()
	return id, nil
}

// DestroyGI ends a GPU instance. Errors: Invalid, NotSupported, NoPermission, NotFound, InUse (it has a compute
// instance), Lost.
func (m *Model) DestroyGI(index int, root bool, gi uint64) error {
	g, in, err := m.instance(index, root, gi)
	switch {
	case err != nil:
		return err
	case in.Compute || m.runsOn(g, gi):
		return wire.InUse
	}
	g.instances[gi-1], g.capacity[gi-1] = nil, sharing.Bytes(0)
	g.recount()
	return nil
}

// CreateCI makes the compute instance of a GPU instance and returns its id. Errors: Invalid, NotSupported,
// NoPermission, NotFound, Insufficient (it has one), Lost.
func (m *Model) CreateCI(index int, root bool, gi uint64) (uint64, error) {
	_, in, err := m.instance(index, root, gi)
	switch {
	case err != nil:
		return 0, err
	case in.Compute:
		return 0, wire.Insufficient
	}
	m.lastID++
	in.Compute, in.Made = true, m.lastID
	return 0, nil
}

// DestroyCI ends the compute instance of a GPU instance. Errors: Invalid, NotSupported, NoPermission, NotFound,
// InUse (a process holds something on it), Lost.
func (m *Model) DestroyCI(index int, root bool, gi, ci uint64) error {
	g, in, err := m.instance(index, root, gi)
	switch {
	case err != nil:
		return err
	case !in.Compute || ci != 0:
		return wire.NotFound
	case m.runsOn(g, gi):
		return wire.InUse
	}
	in.Compute = false
	return nil
}

// cuttable returns a GPU in MIG mode that the caller may cut.
func (m *Model) cuttable(index int, root bool) (*gpu, error) {
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
	g, err := m.cuttable(index, root)
	switch {
	case err != nil:
		return nil, nil, err
	case gi == 0 || gi > uint64(len(g.instances)) || g.instances[gi-1] == nil:
		return nil, nil, wire.NotFound
	}
	return g, g.instances[gi-1], nil
}

// runsOn reports whether a process holds something on an instance.
func (m *Model) runsOn(g *gpu, gi uint64) bool {
	part := int(gi) - 1 // #nosec G115 -- an id that is there
	for _, c := range m.clients {
		if c.gpu != g {
			continue
		}
		for _, h := range c.contexts {
			if h.part == part {
				return true
			}
		}
		for _, a := range c.allocs {
			if a.part == part {
				return true
			}
		}
		for _, s := range c.imports {
			if s.part == part {
				return true
			}
		}
	}
	return false
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
