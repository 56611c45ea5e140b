// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"

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
	// Instances are the MIG instances; their index in this slice plus 1 is their GPU instance id.
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
	BAR1                 sharing.Bytes // the window through which the host sees its memory; 0: not told
	SMs, ThreadsPerSM    uint64
	PowerLimit           uint64 // milliwatts; 0: not told, like the two clocks
	SMClock, MemoryClock uint64 // MHz at most
	PCIDevice, PCISubsys uint64
	NVLinks              int
	// MaxMIG is the number of MIG devices that fit at most, 0 for a GPU without MIG.
	MaxMIG        int
	ComputeSlices int
	MemorySlices  int
	Profiles      []Profile
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

// Remaining returns how many more instances of p fit beside those that there are.
func (g GPU) Remaining(p Profile) int {
	var taken uint64 // memory slices, one bit each
	slices, same := 0, 0
	for _, in := range g.Instances {
		taken |= mask(in.Start, in.Profile.Size)
		slices += in.Profile.Slices
		if in.Profile.ID == p.ID {
			same++
		}
	}
	n := 0
	for _, start := range p.Starts {
		place := mask(start, p.Size)
		if taken&place == 0 && slices+p.Slices <= g.Model.ComputeSlices && same+n < p.Max {
			taken |= place
			slices += p.Slices
			n++
		}
	}
	return n
}

// mask has a bit for each memory slice of a place; a place that cannot be has none.
func mask(start, size int) uint64 {
	if start < 0 || size < 0 {
		return 0
	}
	return (1<<size - 1) << start
}
