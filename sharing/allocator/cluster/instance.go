// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"slices"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
)

// Starter is a Policy that says where on a GPU a MIG instance begins.
type Starter interface {
	// Start is called for a GPU that has a place for the profile of that id.
	Start(n *Node, gpu, profile int) int
}

// geometry is the MIG geometry that GPUs with one table share.
type geometry struct {
	table    *mig.Table
	profiles []mig.Profile
	// found has the index of the profile for each way to ask for one, -1 for none.
	found map[Shape]int
	// values are those of a demand for all profiles alike; nil until they are needed.
	values *mig.Values
}

// sharedGeometry creates the geometry when it is first needed. Nodes of a cluster share those of equal tables.
func (n *Node) sharedGeometry() *geometry {
	if n.geometry == nil {
		n.geometry = &geometry{table: n.Table, profiles: n.Table.Profiles(), found: map[Shape]int{}}
	}
	return n.geometry
}

// empty makes the GPUs of a node in MIG mode free of instances.
func (n *Node) empty() {
	n.instances = nil
	if n.Table != nil {
		n.instances = make([]mig.Occupancy, len(n.GPUs))
		for g := range n.GPUs {
			n.GPUs[g] = WholeGPU
		}
	}
}

// instance is the profile that answers the shape: the one that is named, else the smallest that holds the share. False
// when there is none.
func (n *Node) instance(s Shape) (mig.Profile, bool) {
	c := n.sharedGeometry()
	key := Shape{Profile: s.Profile}
	if s.Profile == "" {
		key = Shape{Share: s.Share, GPUMemory: s.GPUMemory}
	}
	i, known := c.found[key]
	if !known {
		i = c.find(key)
		c.found[key] = i
	}
	if i < 0 {
		return mig.Profile{}, false
	}
	return c.profiles[i], true
}

func (c *geometry) find(s Shape) int {
	if s.Profile != "" {
		p, err := c.table.Lookup("profile", s.Profile)
		if err != nil {
			return -1
		}
		return slices.IndexFunc(c.profiles, func(q mig.Profile) bool { return q.ID == p.ID })
	}
	return slices.IndexFunc(c.profiles, func(p mig.Profile) bool {
		w, err := mig.ParseWish("profile", p.Name)
		return err == nil && w.Attribute == "" && p.Memory >= s.GPUMemory &&
			Milli(p.Compute)*WholeGPU >= s.Share*Milli(c.table.Compute())
	})
}

// booked is an instance's part of its GPU.
func (c *geometry) booked(p mig.Profile) Milli {
	return (Milli(p.Size)*WholeGPU + Milli(c.table.Axis()) - 1) / Milli(c.table.Axis())
}

// room reports whether the GPU, with this free capacity, fits the shape as the node reserves it.
func (n *Node) room(gpu int, free Milli, s Shape) bool {
	if free < s.Share {
		return false
	}
	if n.Table == nil || s.GPUs == 0 {
		return true
	}
	p, ok := n.instance(s)
	return ok && n.begins(gpu, p, func(int) bool { return true })
}

// begins calls visit for each place of the profile that is free on the GPU, the last first, until it is true.
func (n *Node) begins(gpu int, p mig.Profile, visit func(start int) bool) bool {
	for _, start := range slices.Backward(p.Starts) {
		if n.Table.Fits(n.instances[gpu], mig.Place{Profile: p.ID, Start: start}) && visit(start) {
			return true
		}
	}
	return false
}

// count is on how many of the GPUs the shape has room, where free is what they have.
func (n *Node) count(free []Milli, s Shape) int {
	fit := 0
	for g, left := range free {
		if n.room(g, left, s) {
			fit++
		}
	}
	return fit
}

// alike is whether the GPU is free in the same way as one before it.
func (n *Node) alike(gpu int) bool {
	for g := range gpu {
		if n.GPUs[g] == n.GPUs[gpu] && (n.Table == nil || n.instances[g] == n.instances[gpu]) {
			return true
		}
	}
	return false
}

// starts are where the instances of a request begin, one for each GPU; nil on nodes without MIG.
func starts(policy Policy, n *Node, s Shape, gpus []int) []int {
	if n.Table == nil || s.GPUs == 0 {
		return nil
	}
	p, ok := n.instance(s)
	if !ok {
		return nil
	}
	out := make([]int, 0, len(gpus))
	for _, g := range gpus {
		if st, ok := policy.(Starter); ok {
			out = append(out, st.Start(n, g, p.ID))
		} else {
			start, _ := n.best(g, p, n.usual())
			out = append(out, start)
		}
	}
	return out
}

// usual are values for a demand of which nothing is known.
func (n *Node) usual() *mig.Values {
	c := n.sharedGeometry()
	if c.values == nil {
		c.values = mig.NewValues(n.Table, nil)
	}
	return c.values
}

// best is the place for the profile that costs the values least, and what it costs; -1 when there is none. Of equal
// ones it is the last.
func (n *Node) best(gpu int, p mig.Profile, v *mig.Values) (int, mig.Value) {
	at, least := -1, mig.Value(0)
	free := n.Table.Free(n.instances[gpu])
	n.begins(gpu, p, func(start int) bool {
		units, _ := n.Table.Mask(mig.Place{Profile: p.ID, Start: start})
		if loss := v.Loss(free, units); at < 0 || loss < least {
			at, least = start, loss
		}
		return false
	})
	return at, least
}

// hold reserves an instance, or releases it if sign is 1.
func (n *Node) hold(gpu, start int, p mig.Profile, sign Milli) {
	change := n.Table.Add
	if sign > 0 {
		change = n.Table.Remove
	}
	// Take has looked whether it fits, and what is given back was taken.
	if next, err := change(n.instances[gpu], mig.Place{Profile: p.ID, Start: start}); err == nil {
		n.instances[gpu] = next
	}
}

// Place completes a placement on given GPUs of a node: where MIG instances begin. False when there is no room.
func (c *Cluster) Place(r Request, node int, gpus []int) (Placement, bool) {
	p := Placement{Node: node, GPUs: gpus, Starts: starts(c.policy, c.nodes[node], r.Shape, gpus)}
	return p, !slices.Contains(p.Starts, -1) && c.fit(r, p) == nil
}

// level is what holds a share on the node.
func (n *Node) level() sharing.Level {
	if n.Table != nil {
		return sharing.LevelHardware
	}
	return n.Level
}

// LowestStart is where an instance of the profile of that id can begin on the GPU, the lowest; -1 when there is no
// place.
func (n *Node) LowestStart(gpu, profile int) int {
	at := -1
	if p, ok := n.Table.Profile(profile); ok {
		n.begins(gpu, p, func(start int) bool { at = start; return false })
	}
	return at
}

// SetMIG sets the instances of the GPUs of a node in MIG mode, and derives GPUs from them. It is for callers that keep
// their own cluster state and ask a Policy: nodes that are added to a Cluster are empty. Copies of the node share what
// is computed from its Table.
func (n *Node) SetMIG(have []mig.Occupancy) {
	c := n.sharedGeometry()
	n.instances, n.GPUs = slices.Clone(have), make([]Milli, len(have))
	for g, o := range have {
		n.GPUs[g] = (Milli(n.Table.Free(o).Count())*WholeGPU + Milli(c.table.Axis()) - 1) / Milli(c.table.Axis())
	}
}

// Instance is the profile that answers a shape on a node in MIG mode; false when there is none.
func (n *Node) Instance(s Shape) (mig.Profile, bool) { return n.instance(s) }

// Resolve is the shape as the node reserves it, which is what a Policy scores.
func (n *Node) Resolve(s Shape) Shape { return n.resolve(s) }

// TypicalPlacement is where an instance of the profile takes least from the GPU, if all profiles are requested alike,
// and how much that is. It is -1 if no place is free.
func (n *Node) TypicalPlacement(gpu int, p mig.Profile) (int, mig.Value) {
	return n.best(gpu, p, n.usual())
}

// Modes are the modes in which a node gives its GPUs.
type Modes uint8

// In parts and whole, in parts alone, whole alone.
const (
	AllModes Modes = iota
	PartsAlone
	WholeAlone
)

// String completes "GPUs are given".
func (p Modes) String() string {
	switch p {
	case PartsAlone:
		return "in parts alone"
	case WholeAlone:
		return "whole alone"
	case AllModes:
	}
	return "in parts and whole"
}
