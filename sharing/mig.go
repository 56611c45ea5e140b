// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

import "fmt"

// Instance is a MIG instance's place on its GPU, by which it is known: the driver's ids and UUIDs change whenever it is
// made anew. The zero value is none.
type Instance struct {
	// Profile is the driver's name, such as "1g.10gb", and ID the driver's number for it.
	Profile string
	ID      int
	// Start and Size are in placement units of the GPU; Size is at least 1.
	Start, Size int
}

// None reports whether i is no instance.
func (i Instance) None() bool { return i.Size == 0 }

// Overlaps reports whether both cannot be on one GPU.
func (i Instance) Overlaps(j Instance) bool {
	return !i.None() && !j.None() && i.Start < j.Start+j.Size && j.Start < i.Start+i.Size
}

// String returns "1g.10gb at 6".
func (i Instance) String() string {
	if i.None() {
		return "none"
	}
	return fmt.Sprintf("%s at %d", i.Profile, i.Start)
}

// MIGDevice is an instance as the driver has it now.
type MIGDevice struct {
	GPU GPUID
	// UUID begins with "MIG-"; programs name the device by it.
	UUID string
	// GI and CI are the driver's ids, which name its capability files.
	GI, CI int
}
