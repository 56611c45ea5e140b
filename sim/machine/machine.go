// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// MaxGPUs is the largest number of GPUs of a machine: events are chosen by a mask of 64 minors, and the
// libraries look for no minor past it.
const MaxGPUs = 64

// Memacct says how the driver accounts memory against limits on cgroups.
type Memacct string

// The accounting backends.
const (
	// Dmem is hierarchical: every limited group above a process counts.
	Dmem Memacct = "dmem"
	// Misc is flat: only the nearest limited group counts, and a limit below present use is refused.
	Misc Memacct = "misc"
)

// Machine is a node's hardware.
type Machine struct {
	Name        string
	Description string
	Memacct     Memacct
	// NVSwitch is true when all GPUs that have NVLinks reach each other over a switch.
	NVSwitch bool
	// GPUs in the order of index and minor, which are the same number here.
	GPUs []GPU
}

// GPU is one GPU of a machine.
type GPU struct {
	Model Model
	PCI   PCI
	NUMA  int  // NUMA node, -1 when there is none to tell
	MIG   bool // MIG mode is on
	// Instances are the MIG instances that there are when the machine starts.
	Instances []Instance
}

// Instance is a MIG instance.
type Instance struct {
	Profile Profile
	Start   int // memory slice at which it begins
}

// Model is what all GPUs of one product share.
type Model struct {
	Name                 string // as NVML reports it
	Architecture         uint64 // NVML_DEVICE_ARCH_*
	Brand                uint64 // NVML_BRAND_*
	CCMajor, CCMinor     uint64 // compute capability
	Memory, Reserved     sharing.Bytes
	Context              sharing.Bytes // what each context costs
	BAR1                 sharing.Bytes // the window through which the host sees its memory; 0: not reported
	SMs, ThreadsPerSM    uint64
	PowerLimit           uint64 // milliwatts; 0: not reported, like the two clocks
	SMClock, MemoryClock uint64 // MHz at most
	PCIDevice, PCISubsys uint64
	NVLinks              int
	// MaxMIG is the number of MIG devices that fit at most, 0 for a GPU without MIG.
	MaxMIG        int
	ComputeSlices int
	MemorySlices  int
	Profiles      []Profile
	Costs         Costs
	// SystemMemory is true for a GPU without dedicated memory. Memory is the machine's then, and NVML does not
	// report it.
	SystemMemory bool
}

// Costs are measured times and sizes that a driver documents nowhere. The zero value is a driver without them.
type Costs struct {
	// ContextTime is how long a new context takes. Lists of processes wait in the first ListTime of it.
	ContextTime, ListTime time.Duration
	// ExitTime is for how long an ended process keeps its memory and its place in the lists.
	ExitTime time.Duration
	// Stream is the memory of each stream.
	Stream sharing.Bytes
	// Unlisted is memory of each context that is in use and in no list of processes.
	Unlisted sharing.Bytes
	// Slice is how long one client's kernels run while another's wait; 0: work runs in the order of its launches.
	Slice time.Duration
	// Switch is how long the change to another client takes, and Preempt how much more if the first one's work goes on
	// later.
	Switch, Preempt time.Duration
}

// Sharing says how clients share the time of a GPU.
type Sharing string

// The ways.
const (
	// SharingSlices lets them take turns.
	SharingSlices Sharing = "slices"
	// SharingFIFO runs all work in the order of its launches.
	SharingFIFO Sharing = "fifo"
)

// TimeSlice is the slice of a driver without costs.
const TimeSlice = 2 * time.Millisecond

// Shared is the machine with GPUs whose time is shared in such a way. ok is false for an unknown one.
func (m Machine) Shared(how Sharing) (shared Machine, ok bool) {
	m.GPUs = slices.Clone(m.GPUs)
	for i := range m.GPUs {
		c := &m.GPUs[i].Model.Costs
		switch how {
		case SharingSlices:
			c.Slice = cmp.Or(c.Slice, TimeSlice)
		case SharingFIFO:
			c.Slice = 0
		}
	}
	return m, how == SharingSlices || how == SharingFIFO
}

// WithoutCosts is the machine with a driver that has none.
func (m Machine) WithoutCosts() Machine {
	m.GPUs = slices.Clone(m.GPUs)
	for i := range m.GPUs {
		m.GPUs[i].Model.Costs = Costs{}
	}
	return m
}

// Profile is a size of MIG instance.
type Profile struct {
	Name   string // "1g.10gb"
	Index  uint64 // NVML_GPU_INSTANCE_PROFILE_*
	ID     uint64 // the number that nvidia-smi shows
	Slices int    // compute slices
	Memory sharing.Bytes
	SMs    uint64
	Size   int   // memory slices
	Starts []int // memory slices at which one may begin, ascending
	Max    int   // most of them on one GPU

	CopyEngines, Decoders, Encoders, JPEGs, OFAs uint64
}

// PCI is a PCI address; the function is always 0.
type PCI struct {
	Domain uint32
	Bus    uint8
	Device uint8
}

// String writes the address as NVML does: "00000000:1B:00.0".
func (p PCI) String() string { return fmt.Sprintf("%08X:%02X:%02X.0", p.Domain, p.Bus, p.Device) }

// Remaining returns how many more instances of p fit next to the existing ones.
func (g GPU) Remaining(p Profile) int {
	n := 0
	g.Instances = slices.Clone(g.Instances)
	for _, start := range p.Starts {
		if g.Fits(p, start) {
			g.Instances = append(g.Instances, Instance{Profile: p, Start: start})
			n++
		}
	}
	return n
}

// Fits reports whether an instance of p can be created at start, next to the existing ones.
func (g GPU) Fits(p Profile, start int) bool {
	var taken uint64 // memory slices, one bit each
	compute, same := p.Slices, 1
	engines := [4]uint64{p.Decoders, p.Encoders, p.JPEGs, p.OFAs}
	for _, in := range g.Instances {
		q := in.Profile
		taken |= mask(in.Start, q.Size)
		compute += q.Slices
		if q.ID == p.ID {
			same++
		}
		for i, n := range [4]uint64{q.Decoders, q.Encoders, q.JPEGs, q.OFAs} {
			engines[i] += n
		}
	}
	all := [4]uint64{} // a GPU has the engines that its best equipped profile has
	for _, q := range g.Model.Profiles {
		for i, n := range [4]uint64{q.Decoders, q.Encoders, q.JPEGs, q.OFAs} {
			all[i] = max(all[i], n)
		}
	}
	for i := range engines {
		if engines[i] > all[i] {
			return false
		}
	}
	return slices.Contains(p.Starts, start) && taken&mask(start, p.Size) == 0 && compute <= g.Model.ComputeSlices &&
		same <= p.Max
}

// mask has a bit for each memory slice of a place; a place that cannot be has none.
func mask(start, size int) uint64 {
	if start < 0 || size < 0 {
		return 0
	}
	return (1<<size - 1) << start
}
