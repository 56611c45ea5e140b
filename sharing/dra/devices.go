// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

// GPU is what the node knows of a GPU that it may publish.
type GPU struct {
	sharing.GPU
	// Share and Whole say what the pool offers of it now.
	Share, Whole bool
	// MaxShares bounds the number of its shares; 0 for no bound.
	MaxShares int
	// Levels are those that its grants can have.
	Levels []sharing.Level
	// Partition is what it gives as MIG instances.
	Partition MIG
	// Evict is true if the pool ends the pods of an unhealthy or lost GPU.
	Evict bool
}

// Node is what all GPUs of a node have in common.
type Node struct {
	// DriverVersion and CUDAVersion are those of the NVIDIA driver; empty if not known.
	DriverVersion, CUDAVersion string
}

// Attribute is a property of a device. Exactly one of String, Int and Bool is set.
type Attribute struct {
	Name   string
	String string
	Int    *int64
	Bool   *bool
}

// Capacity is an amount of a device of which each claim takes a part.
type Capacity struct {
	Name string
	// Value is what all claims can have together.
	Value uint64
	// Default is what a claim takes that does not state an amount. A stated amount is rounded up to a multiple of Step,
	// from Min to Max.
	Default, Min, Max, Step uint64
}

// Taint keeps pods off a device. Its effect is NoSchedule, or NoExecute if Evict is true.
type Taint struct {
	Key, Value string
	Evict      bool
}

// The taints of a device.
const (
	// TaintUnhealthy has the health of the GPU or MIG instance as value.
	TaintUnhealthy = Driver + "/unhealthy"
	// TaintMIGUnavailable is set while the GPU cannot give MIG instances.
	TaintMIGUnavailable = Driver + "/mig-unavailable"
	// TaintCordoned is set while an administrator has cordoned the GPU.
	TaintCordoned = Driver + "/cordoned"
)

// Device is one entry of a ResourceSlice.
type Device struct {
	Name string
	GPU  sharing.GPUID
	Kind Kind
	// Attributes are sorted by name. Capacity is empty for a whole GPU. Of a MIG instance, it has only a Value.
	Attributes []Attribute
	Capacity   []Capacity
	Taints     []Taint
	// Counters are what all devices of the GPU have together, and Consumes is what this one takes of it.
	Counters, Consumes []Counter
	// BeforeBinding is true if a pod is bound only after the node has set ConditionCreated of its claim's device.
	BeforeBinding bool
}

// CounterSet is the counters of a GPU.
type CounterSet struct {
	Name     string
	Counters []Counter
}

// MaxPerSlice is the most devices of a ResourceSlice with taints or counters, and MaxCounterSets the most counter sets.
const (
	MaxPerSlice    = 64
	MaxCounterSets = 8
)

// CounterSetName is the name of the counters that the devices of a GPU consume. So the scheduler allocates shares of
// the GPU, the whole one, or MIG instances that do not overlap.
func CounterSetName(gpu sharing.GPUID) string { return DeviceName(gpu, KindWhole) }

// Devices are the shares and whole GPUs that a node publishes. The GPUs are in the order in which the scheduler should
// try them. A GPU that stays in MIG mode, has instances of others, or has less than 1 GiB, has no share.
// Nor has one with the system's memory.
func Devices(node Node, gpus []GPU) []Device {
	domains := nvlinkDomains(gpus)
	var out []Device
	for _, g := range gpus {
		if g.Partition.Only || len(g.Partition.Unmanaged) > 0 || g.Ref().IsInstance() {
			continue
		}
		all, consumes := g.counters()
		for _, kind := range []Kind{KindShare, KindWhole} {
			d := Device{Name: DeviceName(g.UUID, kind), GPU: g.UUID, Kind: kind, Taints: taints(g), Counters: all,
				Consumes: consumes}
			switch {
			case kind == KindWhole && !g.Whole,
				kind == KindShare && (!g.Share || g.SystemMemory || gib(g.Usable()) == 0):
				continue
			case kind == KindShare:
				d.Capacity = capacity(g)
			}
			d.Attributes = attributes(node, g, kind, domains[g.UUID])
			out = append(out, d)
		}
	}
	return out
}

// counters are those of the GPU, and those that a share or the whole GPU consumes.
func (g GPU) counters() (all, consumes []Counter) {
	if geo := geometryOf(g.Partition); geo != nil {
		return geo.counters, geo.slices()
	}
	one := []Counter{{counterGPU, 1}}
	return one, one
}

// Slices divides devices into slices of at most MaxPerSlice, in order.
func Slices(devices []Device) [][]Device {
	return slices.Collect(slices.Chunk(devices, MaxPerSlice))
}

// CounterSets are the counter sets of devices, in slices of at most MaxCounterSets, in order.
func CounterSets(devices []Device) [][]CounterSet {
	var sets []CounterSet
	for _, d := range devices {
		name := CounterSetName(d.GPU)
		if !slices.ContainsFunc(sets, func(s CounterSet) bool { return s.Name == name }) {
			sets = append(sets, CounterSet{name, d.Counters})
		}
	}
	return slices.Collect(slices.Chunk(sets, MaxCounterSets))
}

// gib is so many bytes in whole GiB.
func gib(b sharing.Bytes) uint64 { return uint64(b / sharing.GiB) }

// capacity is what claims can have of a GPU's share. A claim that states no memory takes the largest share, so that it
// never has less than its owner expects; Requests rejects it.
func capacity(g GPU) []Capacity {
	const step = uint64(sharing.GiB)
	most := gib(g.Usable()) * step
	percent := uint64(sharing.FullGPU)
	out := []Capacity{
		{Name: CapacityMemory, Value: max(gib(g.Bookable())*step, most), Default: most, Min: step, Max: most,
			Step: step},
		{Name: CapacityPercent, Value: uint64(g.BookablePercent()), Default: 0, Min: 0, Max: percent, Step: 1},
	}
	if g.MaxShares > 0 {
		bound := uint64(g.MaxShares)
		out = append(out, Capacity{Name: CapacityShares, Value: bound, Default: 1, Min: 1, Max: 1, Step: 1})
	}
	return out
}

func taints(g GPU) []Taint {
	var out []Taint
	if g.Health != sharing.HealthOK {
		ends := g.Health == sharing.HealthUnhealthy || g.Health == sharing.HealthLost
		out = append(out, Taint{TaintUnhealthy, g.Health.String(), g.Evict && ends})
	}
	if g.Cordoned != "" {
		out = append(out, Taint{Key: TaintCordoned})
	}
	return out
}

// levels are the enforcement levels that have an attribute.
func levels() []sharing.Level {
	return []sharing.Level{sharing.LevelExclusive, sharing.LevelHardware, sharing.LevelDriver, sharing.LevelUserspace,
		sharing.LevelReactive}
}

// LevelAttribute is the attribute that says whether a device can be enforced at a level, such as "levelDriver".
func LevelAttribute(l sharing.Level) string {
	name := l.String()
	return "level" + strings.ToUpper(name[:1]) + name[1:]
}

// attributes describes a device. The name of an attribute is a C identifier, unless another driver uses it as well.
func attributes(node Node, g GPU, kind Kind, domain string) []Attribute {
	text := map[string]string{
		AttributeType: kind.String(), AttributeUUID: string(g.UUID), "model": g.Model, "architecture": g.Architecture,
		"driverVersion": node.DriverVersion, "cudaVersion": node.CUDAVersion, "nvlinkDomain": domain,
		"resource.kubernetes.io/pcieRoot": g.PCIRoot,
	}
	var out []Attribute
	for _, name := range slices.Sorted(maps.Keys(text)) {
		if value := text[name]; value != "" {
			out = append(out, Attribute{Name: name, String: shorten(value)})
		}
	}
	if g.NUMA >= 0 {
		out = append(out, Attribute{Name: "numaNode", Int: new(int64(g.NUMA))})
	}
	out = append(out, Attribute{Name: "migCapable", Bool: new(g.MIGCapable)})
	for _, l := range levels() {
		can := kind.has(l) && (kind == KindMIG || slices.Contains(g.Levels, l))
		out = append(out, Attribute{Name: LevelAttribute(l), Bool: new(can)})
	}
	sortAttributes(out)
	return out
}

// has reports whether a device of the kind can have a level.
func (k Kind) has(l sharing.Level) bool {
	switch k {
	case KindWhole:
		return l == sharing.LevelExclusive
	case KindMIG:
		return l == sharing.LevelHardware
	case KindShare:
	}
	return l != sharing.LevelExclusive && l != sharing.LevelHardware
}

func sortAttributes(list []Attribute) {
	slices.SortFunc(list, func(a, b Attribute) int { return cmp.Compare(a.Name, b.Name) })
}

// shorten keeps a value within the limit of the API.
func shorten(s string) string {
	const most = 64
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "")
	}
	return s
}

// nvlinkDomains names, for each GPU with NVLinks, the group of GPUs that reach each other: by the least UUID in it.
func nvlinkDomains(gpus []GPU) map[sharing.GPUID]string {
	out := map[sharing.GPUID]string{}
	for _, g := range gpus {
		if len(g.NVLinks) > 0 {
			out[g.UUID] = string(g.UUID)
		}
	}
	for changed := true; changed; {
		changed = false
		for _, g := range gpus {
			for _, other := range g.NVLinks {
				if name, known := out[other]; known && name < out[g.UUID] {
					out[g.UUID], changed = name, true
				} else if known && out[g.UUID] < name {
					out[other], changed = out[g.UUID], true
				}
			}
		}
	}
	return out
}
