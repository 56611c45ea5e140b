// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"cmp"
	"fmt"
	"slices"
)

// GPUID is a GPU's UUID as NVML reports it ("GPU-" and a UUID). It is the only identity of a physical GPU: index, minor
// and PCI address may change at a reboot. GPURef also identifies shared MIG instances.
type GPUID string

// Health is what is known of a GPU's hardware.
type Health uint8

// The health states. Only HealthOK takes new grants.
const (
	// HealthUnknown: the driver has not reported it yet, or does not any more.
	HealthUnknown Health = iota
	// HealthOK: answers, and no critical fault stands.
	HealthOK
	// HealthSuspect: a call hangs or failed once; no new grants until it is known.
	HealthSuspect
	// HealthUnhealthy: a critical XID or the driver's recovery action stands.
	HealthUnhealthy
	// HealthLost: off the bus or gone from the driver.
	HealthLost
)

// String returns the state as status and metrics show it.
func (h Health) String() string {
	switch h {
	case HealthOK:
		return "healthy"
	case HealthSuspect:
		return "suspect"
	case HealthUnhealthy:
		return "unhealthy"
	case HealthLost:
		return "lost"
	case HealthUnknown:
	}
	return "unknown"
}

// Hardware is where a GPU is in its machine, and which product it is.
type Hardware struct {
	PCI  string // domain:bus:device.function
	NUMA int    // NUMA node, -1 if not known
	// PCIRoot is the PCIe root complex above it, such as "pci0000:00"; empty if not known.
	PCIRoot string
	// Architecture is NVIDIA's name in lower case, such as "hopper"; empty if not known.
	Architecture string
	// Product is the PCI device id in the upper and the vendor in the lower half, and Board the same of the board. They
	// are 0 if the driver does not report them.
	Product, Board uint32
	// SystemMemory is true for a GPU without dedicated memory, such as GB10: it uses the machine's. NVML reports no
	// size of it, so Memory and Reserved are 0 and mean unknown. Such a GPU is granted whole only.
	SystemMemory bool
}

// NoShares says why a GPU with SystemMemory gives no share, and what to do.
const NoShares = "this GPU uses system memory, and NVML does not report how much, so that no share can be capped; " +
	"request a whole GPU"

// GPU is one physical device as inventory found it.
type GPU struct {
	UUID  GPUID
	Index int // NVML index; only for display and for a stable order
	Minor int // N of /dev/nvidiaN
	Model string
	Hardware
	// Memory is the GPU's whole memory; Reserved is the driver's own part of it. Reserved <= Memory. Both are unknown,
	// and 0, with SystemMemory.
	Memory   Bytes
	Reserved Bytes
	// Overcommit is how much more than it has is given in fractions; see Bookable.
	Overcommit Overcommit
	// MIG is true while MIG mode is on: such a GPU is not shared by fraction and not given whole.
	MIG bool
	// MIGCapable is true for one that can be put in MIG mode.
	MIGCapable bool
	// NVLinks are the GPUs that this one reaches over NVLink, sorted.
	NVLinks []GPUID
	// Part is the shared MIG instance of the GPU UUID that this entry describes, none for a physical GPU. Of a shared
	// instance, Kerf grants memory and nothing else. The size is 0 while the driver does not show the instance.
	Part Instance

	Health       Health
	HealthReason string // why not HealthOK, for people
	// Cordoned says why an administrator wants nothing new on it, for people; empty where it takes grants. What is on
	// it stays.
	Cordoned string
}

// Ref is the identity of the GPU, or of the shared MIG instance.
func (g *GPU) Ref() GPURef {
	return GPURef{UUID: g.UUID, Instance: InstanceRef{Profile: g.Part.Profile, Start: g.Part.Start}}
}

// Compare orders GPUs by index, and those of one index by identity.
func (g *GPU) Compare(other *GPU) int {
	if c := cmp.Compare(g.Index, other.Index); c != 0 {
		return c
	}
	return g.Ref().Compare(other.Ref())
}

// Usable is the memory that can be granted: all but the driver's own part.
func (g GPU) Usable() Bytes { return g.Memory.SubFloor(g.Reserved) }

// Clone returns a copy that shares nothing with g.
func (g GPU) Clone() GPU {
	g.NVLinks = slices.Clone(g.NVLinks)
	return g
}

// Validate refuses what no real GPU reports: without UUID, without memory unless it uses the system's, or with more
// reserved than there is.
func (g GPU) Validate() error {
	switch {
	case g.UUID == "":
		return fmt.Errorf("gpu %d has no UUID: %w", g.Index, ErrInvalid)
	case g.SystemMemory && g.Memory > 0:
		return fmt.Errorf("gpu %q uses the system's memory and reports %d bytes: %w", g.Ref(), uint64(g.Memory),
			ErrInvalid)
	case g.Memory == 0 && !g.SystemMemory:
		return fmt.Errorf("gpu %q reports no memory: %w", g.Ref(), ErrInvalid)
	case g.Reserved > g.Memory:
		return fmt.Errorf("gpu %q reports %d bytes reserved of %d: %w", g.Ref(), uint64(g.Reserved), uint64(g.Memory),
			ErrInvalid)
	}
	return nil
}
