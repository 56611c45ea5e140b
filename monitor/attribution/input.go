// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

// NoInstance is the GPU instance of a process that is on none, or of which the driver does not say.
const NoInstance = -1

// Slot is a MIG instance's identity: its profile's name and where it begins. The zero Slot is none.
type Slot struct {
	Profile string
	Start   int
}

// Device is what the driver told of one GPU. Activity and energy are of the interval that ends with the sample; the activity of
// processes may be of a longer one.
type Device struct {
	GPU sharing.GPUID
	// Memory is what is in use, without the driver's own part.
	Memory   Reading[sharing.Bytes]
	SM, DRAM Reading[Ratio]
	Energy   Reading[Joules]
	// Encoder, Decoder, Tensor and Occupancy are as in Engines.
	Encoder, Decoder, Tensor, Occupancy Reading[Ratio]
	// Listed is true when Processes is the whole list, and Timed when it tells their activity: a process without any then
	// had none, unless it is Untimed.
	Listed, Timed bool
	Processes     []Process
	// Instances are the MIG instances there are.
	Instances []Instance
}

// Instance is what the driver told of one MIG instance.
type Instance struct {
	GI     int
	Slot   Slot
	Memory Reading[sharing.Bytes]
	// SM and DRAM are parts of the instance, and Compute is the instance's part of the GPU's compute.
	SM, DRAM Reading[Ratio]
	Compute  Ratio
	// Tensor and Occupancy are of the instance, too.
	Tensor, Occupancy Reading[Ratio]
}

// Process is one process on a GPU or, in MIG mode, on one instance of it.
type Process struct {
	PID int
	// GI is the GPU instance's id, or NoInstance.
	GI       int
	Memory   Reading[sharing.Bytes]
	SM, DRAM Ratio
	// Encoder and Decoder count where the Device's are told.
	Encoder, Decoder Ratio
	// Untimed: of this one it is not told what it did.
	Untimed bool
	// Cgroup is the absolute directory that the process is in; empty when it cannot be told, because the process has
	// ended, say.
	Cgroup string
}

// Lease is a grant in use.
type Lease struct {
	Grant string
	// Cgroup is the absolute directory of the lease; what is below belongs to it.
	Cgroup    string
	Fragments []Fragment
}

// Fragment is a lease's part of one GPU. A lease has several on one GPU only where they are MIG instances.
type Fragment struct {
	GPU   sharing.GPUID
	Whole bool
	// Slot is the MIG instance that the fragment is, or nil.
	Slot *Slot
}

// slot is the fragment's MIG instance, the zero Slot where it is none.
func (f Fragment) slot() Slot {
	if f.Slot == nil {
		return Slot{}
	}
	return *f.Slot
}

// owns reports whether a process of that cgroup is the lease's.
func (l Lease) owns(dir string) bool {
	rest, ok := strings.CutPrefix(dir, l.Cgroup)
	return ok && l.Cgroup != "" && (rest == "" || rest[0] == '/')
}
