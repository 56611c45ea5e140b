// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
)

// geometry is what a GPU can be cut into. Reports that say the same share it, so that what is computed of it is computed
// once.
type geometry struct {
	told  []gpunode.MIGProfile
	table *mig.Table
	// node is one without GPUs that has the table.
	node cluster.Node
}

// cut is a GPU in MIG mode as its node reports it, or one that may be put there. It does not change once the report is read.
type cut struct {
	// turns is true where its node would change the mode for a pod now, in which it is on.
	turns, on bool
	// geometry is nil where it is not known, and trouble then says why; it says too why the GPU gives nothing now.
	*geometry
	trouble string
	// fixed is true where the GPU gives only the instances of its layout.
	fixed  bool
	layout []mig.Place
	// others are instances that no pod's claim has.
	others []mig.Place
}

// What GPUNode.turnsTo says.
const (
	turnsToMIG    = "mig"
	turnsToShared = "shared"
)

// reader reads reports.
type reader struct {
	// geometries are those that reports tell of.
	geometries []*geometry
}

// cutOf reads how a GPU is cut; nil for one that is not in MIG mode, and is never put there.
func (d *reader) cutOf(g gpunode.GPU) *cut {
	turns := g.TurnsTo == turnsToMIG && !g.MIG || g.TurnsTo == turnsToShared && g.MIG
	switch {
	case !g.MIG && (g.MIGState == nil || len(g.MIGState.Geometry) == 0):
		return nil
	case g.MIGState == nil || len(g.MIGState.Geometry) == 0:
		return &cut{trouble: "it is not known what it can be cut into"}
	}
	c := &cut{trouble: g.MIGState.Trouble, fixed: g.MIGState.Fixed, turns: turns, on: g.MIG}
	var err error
	if c.geometry, err = d.geometryOf(g.MIGState.Geometry); err != nil {
		c.trouble = err.Error()
		return c
	}
	for _, i := range g.MIGState.Instances {
		in := c.instance(i.Profile, i.Start)
		switch at := (mig.Place{Profile: in.ID, Start: in.Start}); {
		case i.Foreign:
			c.others = append(c.others, at)
			c.must(in)
		case c.fixed && i.Ready:
			c.layout = append(c.layout, at)
		}
	}
	return c
}

func (d *reader) geometryOf(told []gpunode.MIGProfile) (*geometry, error) {
	if i := slices.IndexFunc(d.geometries, func(g *geometry) bool { return reflect.DeepEqual(g.told, told) }); i >= 0 {
		return d.geometries[i], nil
	}
	var profiles []mig.Profile
	for _, p := range told {
		profiles = append(profiles, mig.Profile{
			ID: p.ID, Name: p.Name, Compute: p.Compute, Memory: sharing.Bytes(p.MemoryBytes), Most: p.Most, Size: p.Size, Starts: p.Starts,
			Engines: mig.Engines{Decoders: p.Decoders, Encoders: p.Encoders, JPEGs: p.JPEGs, OFAs: p.OFAs},
		})
	}
	table, err := mig.NewTable(profiles)
	if err != nil {
		return nil, fmt.Errorf("read what it can be cut into: %w", err)
	}
	g := &geometry{told: told, table: table, node: cluster.Node{Table: table}}
	g.node.Cut(nil)
	d.geometries = append(d.geometries, g)
	return g, nil
}

// unknown is the ID of a profile that the GPU's own list does not have.
const unknown = -1

// instance is the one of that name and start; its ID is unknown where the GPU has no such place.
func (c *cut) instance(profile string, start int) sharing.Instance {
	in := sharing.Instance{Profile: profile, ID: unknown, Start: start, Size: 1}
	if c == nil || c.geometry == nil {
		return in
	}
	for _, p := range c.told {
		if p.Name == profile && slices.Contains(p.Starts, start) {
			in.ID, in.Size = p.ID, p.Size
		}
	}
	return in
}

// must has the GPU give nothing when an instance on it is none that it can have: what is free is not known then.
func (c *cut) must(in sharing.Instance) {
	if in.ID == unknown && c.trouble == "" {
		c.trouble = fmt.Sprintf("it has %s, which is none of its places", in)
	}
}

// profile is the one that answers a request; false where the GPU has none, or is in trouble.
func (c *cut) profile(r sharing.Request) (mig.Profile, bool) {
	if c == nil || c.geometry == nil {
		return mig.Profile{}, false
	}
	p, ok := c.node.Instance(cluster.Shape{GPUs: 1, Profile: r.MIG})
	if ok && c.fixed && !slices.ContainsFunc(c.layout, func(at mig.Place) bool { return at.Profile == p.ID }) {
		return mig.Profile{}, false
	}
	return p, ok
}

// fragment is an instance of the profile on a GPU.
func fragment(gpu sharing.GPURef, p mig.Profile, start int) sharing.Fragment {
	return sharing.Fragment{GPU: gpu, Memory: p.Memory, MIG: sharing.Instance{Profile: p.Name, ID: p.ID, Start: start, Size: p.Size}}
}

// cut is how a GPU is cut that is in MIG mode in this state; nil for any other.
func (s *state) cut(id sharing.GPURef) *cut {
	if g := s.at(id); g == nil || !g.GPU.MIG {
		return nil
	}
	return s.cuts[id]
}

// taken is what claims, plans and others have of a GPU in MIG mode.
func (s *state) taken(id sharing.GPURef) mig.Occupancy {
	c := s.cut(id)
	var o mig.Occupancy
	var seen []mig.Place
	for _, at := range slices.Concat(c.others, s.places[id]) {
		if slices.Contains(seen, at) {
			continue // several may have parts of one instance
		}
		seen = append(seen, at)
		if next, ok := c.table.Try(o, at); ok {
			o = next
		} else if units, ok := c.table.Mask(at); ok {
			o.Taken |= units // a plan that its node did not follow
		}
	}
	return o
}

// start is where the GPU has an instance of the profile free, at that unit or at any where it is below 0.
func (s *state) start(id sharing.GPURef, p mig.Profile, at int) (int, bool) {
	c, o := s.cut(id), s.taken(id)
	if !c.fixed {
		return at, c.table.Fits(o, mig.Place{Profile: p.ID, Start: at})
	}
	for _, one := range slices.Backward(c.layout) {
		units, _ := c.table.Mask(one)
		if one.Profile == p.ID && (at < 0 || one.Start == at) && o.Taken&units == 0 {
			return one.Start, true
		}
	}
	return 0, false
}

// units is what is free of a GPU in MIG mode: placement units, or instances of its layout.
func (s *state) units(id sharing.GPURef) (free, of int) {
	c := s.cut(id)
	if c == nil || c.geometry == nil || c.trouble != "" {
		return 0, 1
	}
	o := s.taken(id)
	if !c.fixed {
		return c.table.Free(o).Count(), c.table.Axis()
	}
	for _, at := range c.layout {
		if units, _ := c.table.Mask(at); o.Taken&units == 0 {
			free++
		}
	}
	return free, len(c.layout)
}
