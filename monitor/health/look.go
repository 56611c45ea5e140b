// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package health

// Recovery is the driver's own word on what the GPU needs.
type Recovery struct {
	// Known is false when this driver has no such word.
	Known bool
	// Action is empty when nothing is needed, else its name for people ("GPU reset").
	Action string
}

// Flag is something that a GPU tells, or does not tell. What it does not tell is as it was.
type Flag uint8

// The flags.
const (
	Untold Flag = iota
	No
	Yes
)

// Count is a number that a GPU tells, or does not tell.
type Count struct {
	Known bool
	N     uint64
}

// Sensors are what a GPU tells of itself beside that it answers; the zero value tells nothing.
type Sensors struct {
	// Uncorrected counts the memory errors since the driver was loaded that could not be corrected.
	Uncorrected Count
	// RemapPending: a memory row is remapped at the next reset. RemapFailed: there is no row left to remap it to.
	RemapPending, RemapFailed Flag
	// Overheat and PowerBrake: the hardware itself slows the GPU down for its heat, or because its power supply says so.
	// Slowing down by the driver's software is everyday life and is not meant.
	Overheat, PowerBrake Flag
	// Links counts the NVLinks that are up.
	Links Count
}

// Look is one probe: what came of one cheap call on the GPU and, where it answered, what it tells.
type Look struct {
	// Err is nil when the GPU answered; it wraps sharing.ErrLost when the driver says that it is gone.
	Err      error
	Recovery Recovery
	Sensors  Sensors
}
