// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"fmt"
	"slices"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
)

// MIG is what a node may publish of a GPU's MIG instances. The zero value is that of a GPU without any.
type MIG struct {
	// Geometry has the profiles and placements of the GPU.
	Geometry []mig.Profile
	// Made restricts what is published to these instances, if Fixed is true: the GPU gets no others.
	Fixed bool
	Made  []sharing.Instance
	// Unmanaged are the instances that others created. No claim has one, or overlaps one.
	Unmanaged []sharing.Instance
	// Faulty are the instances that a fault keeps from claims.
	Faulty []sharing.Instance
	// Unavailable is why the GPU gives no instance now, empty if it does. It becomes a taint.
	Unavailable bool
	// Only is true if the GPU stays in MIG mode. It is then neither shared nor given whole.
	Only bool
	// BeforeBinding is true if an instance is created before the pod of its claim is bound.
	BeforeBinding bool
}

// Counter is an amount of a GPU that its devices consume.
type Counter struct {
	Name  string
	Value uint64
}

const (
	// counterGPU is the only counter of a GPU that gives no MIG instance.
	counterGPU = "gpu"
	// counterSlice begins the name of each memory slice's counter, and counterProfile of each profile's.
	counterSlice, counterProfile = "memory-slice-", "profile-"
	counterCompute               = "compute-slices"
	// maxCounters is the most counters of a counter set.
	maxCounters = 32
)

// geometry has the rules of mig.Table as counters. Two instances can exist together if and only if the counters have
// enough for both.
type geometry struct {
	table    *mig.Table
	occupied mig.Occupancy
	counters []Counter
	// counted are the profiles of which fewer can exist than their placements and slices allow.
	counted map[int]bool
}

// geometryOf is nil for a GPU that gives no MIG instance, and for one whose rules need more counters than a set has.
func geometryOf(m MIG) *geometry {
	table, err := mig.NewTable(m.Geometry)
	if err != nil {
		return nil
	}
	g := &geometry{table: table, counted: map[int]bool{}}
	for _, p := range table.Profiles() {
		g.counted[p.ID] = most(table, p) > p.MaxInstances
	}
	var used []Counter
	for _, in := range m.Unmanaged {
		at := mig.Place{Profile: in.ID, Start: in.Start}
		after, ok := table.Try(g.occupied, at)
		if !ok {
			return nil // The geometry does not explain what is there.
		}
		g.occupied, used = after, append(used, g.consumes(at)...)
	}
	for _, c := range g.all() {
		for _, u := range used {
			if u.Name == c.Name {
				c.Value -= min(u.Value, c.Value)
			}
		}
		if c.Value > 0 {
			g.counters = append(g.counters, c)
		}
	}
	if len(g.counters) > maxCounters {
		return nil
	}
	return g
}

// most is how many instances of a profile exist together by all but its own maximum.
func most(table *mig.Table, p mig.Profile) int {
	n, end := 0, 0
	for _, start := range p.Starts {
		if start >= end {
			n, end = n+1, start+p.Size
		}
	}
	n = min(n, table.Compute()/p.Compute)
	total, each := engines(table.Engines()), engines(p.Engines)
	for i := range total {
		if each[i].Value > 0 {
			n = min(n, int(total[i].Value/each[i].Value)) //nolint:gosec // a few engines
		}
	}
	return n
}

// engines are the counters of media engines.
func engines(e mig.Engines) []Counter {
	return []Counter{{"decoders", amount(e.Decoders)}, {"encoders", amount(e.Encoders)},
		{"jpeg-engines", amount(e.JPEGs)}, {"ofa-engines", amount(e.OFAs)}}
}

func amount(n int) uint64 { return uint64(max(n, 0)) }

// all are the counters of the GPU without instances.
func (g *geometry) all() []Counter {
	var out []Counter
	for i := range g.table.Axis() {
		out = append(out, Counter{fmt.Sprint(counterSlice, i), 1})
	}
	out = append(out, Counter{counterCompute, amount(g.table.Compute())})
	out = append(out, engines(g.table.Engines())...)
	for _, p := range g.table.Profiles() {
		if g.counted[p.ID] {
			out = append(out, Counter{fmt.Sprint(counterProfile, p.ID), amount(p.MaxInstances)})
		}
	}
	return out
}

// consumes are the counters of an instance.
func (g *geometry) consumes(at mig.Place) []Counter {
	p, _ := g.table.Profile(at.Profile)
	var out []Counter
	for i := range p.Size {
		out = append(out, Counter{fmt.Sprint(counterSlice, at.Start+i), 1})
	}
	out = append(out, Counter{counterCompute, amount(p.Compute)})
	out = append(out, engines(p.Engines)...)
	if g.counted[at.Profile] {
		out = append(out, Counter{fmt.Sprint(counterProfile, at.Profile), 1})
	}
	return slices.DeleteFunc(out, func(c Counter) bool { return c.Value == 0 })
}

// slices are the counters of all memory slices, which a share and the whole GPU consume.
func (g *geometry) slices() []Counter {
	var out []Counter
	for i := range g.table.Axis() {
		out = append(out, Counter{fmt.Sprint(counterSlice, i), 1})
	}
	return out
}

// places are the instances to publish: small profiles first, and of each the last start first. So the large placements
// at the start stay free.
func (g *geometry) places(m MIG) []sharing.Instance {
	var out []sharing.Instance
	for _, p := range g.table.Profiles() {
		for _, start := range slices.Backward(p.Starts) {
			in := sharing.Instance{Profile: p.Name, ID: p.ID, Start: start, Size: p.Size}
			if g.table.Fits(g.occupied, mig.Place{Profile: p.ID, Start: start}) &&
				(!m.Fixed || slices.Contains(m.Made, in)) {
				out = append(out, in)
			}
		}
	}
	return out
}

// Instances are the devices of MIG instances that a node publishes. The GPUs are in the order in which the scheduler
// should try them.
func Instances(node Node, gpus []GPU) []Device {
	domains := nvlinkDomains(gpus)
	var out []Device
	for _, g := range gpus {
		geo := geometryOf(g.Partition)
		if geo == nil || g.Ref().IsInstance() {
			continue
		}
		for _, in := range geo.places(g.Partition) {
			name, ok := InstanceName(g.UUID, in.Ref())
			if !ok {
				continue
			}
			profile, _ := geo.table.Profile(in.ID)
			d := Device{Name: name, GPU: g.UUID, Kind: KindMIG, Taints: g.instanceTaints(in),
				Attributes: attributes(node, g, KindMIG, domains[g.UUID]), Counters: geo.counters,
				Consumes:      geo.consumes(mig.Place{Profile: in.ID, Start: in.Start}),
				Capacity:      []Capacity{{Name: CapacityMemory, Value: uint64(profile.Memory)}},
				BeforeBinding: g.Partition.BeforeBinding}
			d.Attributes = append(d.Attributes, Attribute{Name: AttributeProfile, String: shorten(in.Profile)},
				Attribute{Name: AttributePlacementStart, Int: new(int64(in.Start))})
			sortAttributes(d.Attributes)
			out = append(out, d)
		}
	}
	return out
}

// instanceTaints are those of the GPU, and those of the faulty instances that the instance overlaps.
func (g GPU) instanceTaints(in sharing.Instance) []Taint {
	out := taints(g)
	switch {
	case g.Health != sharing.HealthOK:
	case slices.ContainsFunc(g.Partition.Faulty, in.Overlaps):
		out = append(out, Taint{TaintUnhealthy, sharing.HealthUnhealthy.String(), g.Evict})
	case g.Partition.Unavailable:
		out = append(out, Taint{Key: TaintMIGUnavailable})
	}
	return out
}
