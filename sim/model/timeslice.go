// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

// TimeSlice is how long one process's work runs before another's gets its turn, as `nvidia-smi compute-policy` numbers
// it. It is kept and shown, and changes nothing here: simulated work runs in the order of its launches.
type TimeSlice uint64

// The time slices of the driver.
const (
	TimeSliceDefault TimeSlice = iota
	TimeSliceShort
	TimeSliceMedium
	TimeSliceLong
)

// String returns the word that nvidia-smi shows.
func (t TimeSlice) String() string {
	switch t {
	case TimeSliceShort:
		return "Short"
	case TimeSliceMedium:
		return "Medium"
	case TimeSliceLong:
		return "Long"
	case TimeSliceDefault:
	}
	return "Default"
}
