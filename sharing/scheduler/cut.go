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
	gpureport "github.com/kerf-gpu/kerf/sharing/allocator/report"
)

// geometry is the MIG geometry of a GPU. Equal reports share it, so that derived values are computed once.
type geometry struct {
	profileList []gpunode.MIGProfile
	table       *mig.Table
	// node is one without GPUs that has the table.
	node cluster.Node
}

// migGPU is a GPU in MIG mode as its node reports it, or one that may switch to it. It does not change once the report
// is read.
type migGPU struct {
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
	// byClaim is true if pods get it by ResourceClaim only.
	byClaim bool
}

// What GPUNode.switchableTo says.
const (
	switchableToMIG    = "mig"
	switchableToShared = "shared"
)

// reader reads reports.
type reader struct {
	// geometries are those that reports tell of.
	geometries []*geometry
}

// noPlaceReason reads the MIG state of a GPU; nil for one that is not in MIG mode, and never switches to it.
func (d *reader) noPlaceReason(g gpunode.GPU) *migGPU {
	turns := g.SwitchableTo == switchableToMIG && !g.MIG || g.SwitchableTo == switchableToShared && g.MIG
	switch {
	case !g.MIG && (g.MIGState == nil || len(g.MIGState.Geometry) == 0):
		return nil
	case g.MIGState == nil || len(g.MIGState.Geometry) == 0:
		return &migGPU{trouble: "its MIG geometry is unknown"}
	}
	c := &migGPU{trouble: g.MIGState.Error, fixed: g.MIGState.LayoutFromPool, turns: turns, on: g.MIG}
	var err error
	if c.geometry, err = d.geometryOf(g.MIGState.Geometry); err != nil {
		c.trouble = err.Error()
		return c
	}
	for _, i := range g.MIGState.Instances {
		in := c.instance(i.Profile, i.Start)
		switch at := (mig.Place{Profile: in.ID, Start: in.Start}); {
		case !i.Managed:
			c.others = append(c.others, at)
			c.must(in)
		case c.fixed && i.Ready:
			c.layout = append(c.layout, at)
		}
	}
	return c
}

func (d *reader) geometryOf(profileList []gpunode.MIGProfile) (*geometry, error) {
	same := func(g *geometry) bool { return reflect.DeepEqual(g.profileList, profileList) }
	if i := slices.IndexFunc(d.geometries, same); i >= 0 {
		return d.geometries[i], nil
	}
	var profiles []mig.Profile
	for _, p := range profileList {
		profiles = append(profiles, mig.Profile{
			ID: p.ID, Name: p.Name, Compute: p.Compute, Memory: gpureport.Bytes(p.MemoryBytes),
			MaxInstances: p.MaxInstances,
			Size:         p.MemorySlices, Starts: p.PlacementStarts,
			Engines: mig.Engines{Decoders: p.Decoders, Encoders: p.Encoders, JPEGs: p.JPEGs, OFAs: p.OFAs},
		})
	}
	table, err := mig.NewTable(profiles)
	if err != nil {
		return nil, fmt.Errorf("read its MIG geometry: %w", err)
	}
	g := &geometry{profileList: profileList, table: table, node: cluster.Node{Table: table}}
	g.node.SetMIG(nil)
	d.geometries = append(d.geometries, g)
	return g, nil
}

// unknown is the ID of a profile that the GPU's own list does not have.
const unknown = -1

// instance is the one of that name and start; its ID is unknown where the GPU has no such place.
func (c *migGPU) instance(profile string, start int) sharing.Instance {
	in := sharing.Instance{Profile: profile, ID: unknown, Start: start, Size: 1}
	if c == nil || c.geometry == nil {
		return in
	}
	for _, p := range c.profileList {
		if p.Name == profile && slices.Contains(p.PlacementStarts, start) {
			in.ID, in.Size = p.ID, p.MemorySlices
		}
	}
	return in
}

// must has the GPU give nothing when an instance on it is none that it can have: what is free is not known then.
func (c *migGPU) must(in sharing.Instance) {
	if in.ID == unknown && c.trouble == "" {
		c.trouble = fmt.Sprintf("it has %s, which is none of its places", in)
	}
}

// profile is the one that answers a request by limits; false if the GPU has none.
func (c *migGPU) profile(r sharing.Request) (mig.Profile, bool) {
	if c == nil || c.geometry == nil || c.byClaim {
		return mig.Profile{}, false
	}
	p, ok := c.node.Instance(cluster.Shape{GPUs: 1, Profile: r.MIG})
	if ok && c.fixed && !slices.ContainsFunc(c.layout, func(at mig.Place) bool { return at.Profile == p.ID }) {
		return mig.Profile{}, false
	}
	return p, ok
}

// instanceShare is the share that has an instance of the profile on a GPU.
func instanceShare(gpu sharing.GPURef, p mig.Profile, start int) sharing.Share {
	return sharing.Share{GPU: gpu, Memory: p.Memory, MIG: sharing.Instance{Profile: p.Name, ID: p.ID, Start: start,
		Size: p.Size}}
}

// migGPU is the MIG state of a GPU that is in MIG mode in this state; nil for any other.
func (s *state) migGPU(id sharing.GPURef) *migGPU {
	if g := s.at(id); g == nil || !g.GPU.MIG {
		return nil
	}
	return s.migGPUs[id]
}

// taken is what claims, plans and others have of a GPU in MIG mode.
func (s *state) taken(id sharing.GPURef) mig.Occupancy {
	c := s.migGPU(id)
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
	c, o := s.migGPU(id), s.taken(id)
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
	c := s.migGPU(id)
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
